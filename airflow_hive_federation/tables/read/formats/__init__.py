"""Spark reads tables without row ids: text, Parquet and plain ORC."""

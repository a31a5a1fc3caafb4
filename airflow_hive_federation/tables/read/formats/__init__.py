"""Reads tables without row ids with Spark: text, Parquet and plain ORC."""

"""Runs jobs on Spark: copying, verification, compaction, SQL statements and a streaming sink."""

"""Hive's own replication suite, re-enacted: see README.md."""

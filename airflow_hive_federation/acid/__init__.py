"""Hive's ACID table format: directory names, the snapshot of a table, reading, dropping aborted rows."""

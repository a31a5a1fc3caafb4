"""Hive's tables, read and written by Spark."""

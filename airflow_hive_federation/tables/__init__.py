"""Reads and writes Hive tables with Spark."""

"""Reads Hive tables with Spark."""

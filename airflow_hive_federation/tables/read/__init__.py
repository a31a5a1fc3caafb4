"""Spark reads Hive's tables."""

"""Writes ACID tables with Spark: plans, arranges the rows, writes files in tasks, and publishes them."""

"""Implements Hive's ACID table format: directory names, snapshots, side files, buckets and row ids."""

"""Replication of Hive databases (spec 5): policy, dump, copy, load, verification."""

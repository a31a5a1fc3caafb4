"""Reads and writes ORC files as Hive does, where pyarrow's reader and writer do not suffice."""

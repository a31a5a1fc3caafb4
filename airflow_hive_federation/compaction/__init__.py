"""Compaction: planned, merged by tasks, published, and asked for by the metastore's queue."""

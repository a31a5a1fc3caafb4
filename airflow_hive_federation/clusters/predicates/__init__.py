"""Predicates decide which partitions a statement may read. Pure."""

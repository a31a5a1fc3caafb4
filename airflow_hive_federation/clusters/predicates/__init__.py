"""Decides by predicates which partitions a statement may read. Pure."""

"""Tests on real servers: compaction."""

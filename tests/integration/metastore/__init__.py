"""Tests on real servers: metastore."""

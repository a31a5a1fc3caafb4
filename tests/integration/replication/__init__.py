"""Tests on real servers: replication."""

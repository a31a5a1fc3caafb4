"""Tests on real servers: ingest."""

"""Tests on real servers: acid."""

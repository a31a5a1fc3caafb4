"""Tests on real servers: storage."""

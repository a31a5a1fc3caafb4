"""Tests on real servers: clusters."""

"""Tests on real servers: project."""

"""Tests on real servers: embedded."""

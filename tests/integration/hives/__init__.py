"""Tests on real servers: hives."""

"""Tests on real servers: gateway."""

"""Tests on real servers: remotes."""

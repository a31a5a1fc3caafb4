"""Finds Java and the cache directory of this machine, and removes secrets from environments."""

"""Chooses a cluster for a statement. Pure."""

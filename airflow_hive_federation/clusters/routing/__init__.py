"""Routing chooses a cluster for a statement. Pure."""

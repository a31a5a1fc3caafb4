"""Comparing a replica with its source, and mending it."""

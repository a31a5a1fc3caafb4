"""Compares a replica with its source."""

"""Copies of tables in secondary clusters."""

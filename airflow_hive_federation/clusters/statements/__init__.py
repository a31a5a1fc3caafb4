"""Parses statements as far as routing needs them. Pure."""

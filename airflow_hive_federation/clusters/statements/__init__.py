"""Statements are parsed as far as routing needs them. Pure."""

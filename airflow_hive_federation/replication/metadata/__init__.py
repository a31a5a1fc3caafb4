"""Translates definitions, names and places from the source to the target."""

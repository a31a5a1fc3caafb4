"""Parses records into rows, with one record writer per format."""

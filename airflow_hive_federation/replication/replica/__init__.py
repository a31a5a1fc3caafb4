"""Reads and writes the markers of a target, and controls which policies and cycles may work on it."""

"""Bringing a target to a dump: files, definitions, transactions."""

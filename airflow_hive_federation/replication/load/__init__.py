"""Brings a target to the state of a dump: files, definitions, transactions."""

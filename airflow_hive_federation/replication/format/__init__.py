"""Defines the format of a dump: its directory, documents, files and kinds."""

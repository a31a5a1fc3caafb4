"""Chooses the remedy if a file that a person wrote cannot be read."""

from __future__ import annotations


def remedy_of_unreadable(error: Exception) -> str:
    """Return the remedy of a TOML file that cannot be read.

    :param error: an ``OSError`` of the file system, or the ``ValueError`` of the parser or the encoding.
    """
    if isinstance(error, OSError):
        return "Check the path, and the right to read it."
    return "Correct the TOML at the place that the error names."

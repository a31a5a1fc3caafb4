"""Reads from parameters which remote metastore a local table or database links to."""

from __future__ import annotations

from collections.abc import Mapping

REMOTE_NAME = "hive.federation.remote.name"
"""The parameter with the name of the remote."""
WRITE_THERE = "Remotes are for reading: write at the metastore that owns it."


def remote_of(parameters: Mapping[str, str] | None) -> str | None:
    """Return the name of the remote that an object links to; ``None`` if its parameters have no link."""
    return (parameters or {}).get(REMOTE_NAME)

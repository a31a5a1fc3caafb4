"""How a local table or database says that it stands for one of another metastore."""

from __future__ import annotations

from collections.abc import Mapping

REMOTE_NAME = "hive.federation.remote.name"
"""The parameter with its name there."""
WRITE_THERE = "Remotes are for reading: write at the metastore that owns it."


def remote_of(parameters: Mapping[str, str] | None) -> str | None:
    """Return the remote that an object with these parameters stands for; ``None`` if it is no link."""
    return (parameters or {}).get(REMOTE_NAME)

"""Owners of databases and tables: from a local name to the metastore that has it, and back. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A database, or a table of it, at the metastore that owns it.

    :param owner: name of the upstream.
    :param database: its name there, lower case.
    :param table: name of the table there; ``None`` where the whole database is meant.
    """

    owner: str
    database: str
    table: str | None = None

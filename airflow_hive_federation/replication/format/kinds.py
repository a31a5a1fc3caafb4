"""Defines the kinds of dumps, of tables, and of the work of a cycle on them, as a dump writes them."""

from __future__ import annotations

from enum import Enum


class DumpKind(Enum):
    """The kind of a dump."""

    BOOTSTRAP = "BOOTSTRAP"
    INCREMENT = "INCREMENT"


class TableWork(Enum):
    """The work that a cycle does on a table of the source."""

    NOTHING = "nothing"
    CONTINUE = "continue"  # brings the target's table forward
    CREATE = "create"  # the target has no such table
    REPLACE = "replace"  # the target's table is another one, or cannot be brought forward


class TableKind(Enum):
    """The kind of a table, by which replication treats it."""

    FULL_ACID = "full_acid"
    INSERT_ONLY = "insert_only"
    MANAGED = "managed"
    EXTERNAL = "external"
    VIEW = "view"
    MATERIALIZED_VIEW = "materialized_view"

    @property
    def transactional(self) -> bool:
        return self in {TableKind.FULL_ACID, TableKind.INSERT_ONLY}

    @property
    def has_files(self) -> bool:
        return self not in {TableKind.VIEW, TableKind.MATERIALIZED_VIEW}

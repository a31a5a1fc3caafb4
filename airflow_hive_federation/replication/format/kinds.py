"""Kinds of tables, and of what a cycle does with them, as a dump writes them."""

from __future__ import annotations

from enum import Enum


class TableWork(Enum):
    """What a cycle does with a table of the source."""

    NOTHING = "nothing"
    CONTINUE = "continue"  # bring the target's table forward
    CREATE = "create"  # the target has none
    REPLACE = "replace"  # the target's table is another one, or cannot be brought forward


class TableKind(Enum):
    """What a table is to replication."""

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

"""What is to be mended of a target, from the differences that a verification names. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_hive_federation.replication.replica.differences import (
    OWNER,
    RETAINED,
    ROW_DIGEST,
    WRITE_IDS,
    Difference,
)

#: Fields that altering a table does not change: it is made anew.
_FIXED = frozenset(
    {"partitionKeys", "tableType", "parameters.transactional", "parameters.transactional_properties"}
)
#: What differs of a table that is made anew: it is somebody else's, or its write ids are; or rows are missing
#: of which no file tells, for the target has compacted what was left of them.
_REPLACED = _FIXED | {OWNER, WRITE_IDS, ROW_DIGEST, "rows"}
_NAMES = ("tables", "replaced", "files")


@dataclass(frozen=True, kw_only=True)
class Mend:
    """What a cycle mends beside bringing what is new.

    :param tables: tables that are looked at whether events name them or not.
    :param replaced: those of them that are copied anew, as a whole.
    :param files: canonical URIs of the target's files that are not what was copied: those that belong there
        are copied again, whatever lies there; the others are removed.
    :param database: properties of the database differ, or functions; any cycle brings these.
    """

    tables: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    database: bool = False

    def __bool__(self) -> bool:
        return bool(self.tables) or self.database

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        return {**{name: sorted(values[name]) for name in _NAMES}, "database": self.database}

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | None) -> Mend:
        found = values or {}
        names = {name: frozenset(found.get(name, ())) for name in _NAMES}
        return cls(**names, database=bool(found.get("database", False)))


def mend_of(differences: Iterable[Difference], *, again: Iterable[str] = ()) -> Mend:
    """Say what mends differences. What a target retains is left to somebody who decides.

    :param again: tables that were mended and differ all the same: they are made anew.
    """
    found = [one for one in differences if one.what != RETAINED]
    with_files = {one.table for one in found if one.what == "file"}
    replaced = {
        one.table
        for one in found
        # Files that differ explain rows that do.
        if one.what in _REPLACED and not (one.what in {"rows", ROW_DIGEST} and one.table in with_files)
    }
    return Mend(
        tables=frozenset(one.table for one in found if one.table),
        replaced=frozenset(replaced | set(again)),
        files=frozenset(one.where for one in found if one.what == "file"),
        database=any(not one.table for one in found),
    )

"""Derives the repairs of a target from the differences that a verification found. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_hive_federation.replication.format.manifest import RepairPlan
from airflow_hive_federation.replication.replica.differences import (
    OWNER,
    RETAINED,
    ROW_DIGEST,
    WRITE_IDS,
    Difference,
)

#: An alteration of a table does not change these fields: the table is made anew.
_FIXED = frozenset(
    {"partitionKeys", "tableType", "parameters.transactional", "parameters.transactional_properties"}
)
#: A table is made anew if it differs in one of these. Either the table or its write ids are somebody else's,
#: or rows are missing that no file accounts for, because the target has compacted the rest.
_REPLACED = _FIXED | {OWNER, WRITE_IDS, ROW_DIGEST, "rows"}


def repair_plan_of(differences: Iterable[Difference], *, again: Iterable[str] = ()) -> RepairPlan:
    """Return the repairs for differences, except for retained tables, which wait for an administrator.

    :param again: tables that were repaired and still differ: they are made anew.
    """
    repairable = [difference for difference in differences if difference.what != RETAINED]
    with_files = {difference.table for difference in repairable if difference.what == "file"}
    replaced = {
        difference.table
        for difference in repairable
        # Differing files explain differing rows.
        if difference.what in _REPLACED
        and not (difference.what in {"rows", ROW_DIGEST} and difference.table in with_files)
    }
    return RepairPlan(
        tables=frozenset(difference.table for difference in repairable if difference.table),
        replaced=frozenset(replaced | set(again)),
        files=frozenset(difference.where for difference in repairable if difference.what == "file"),
        database=any(not difference.table for difference in repairable),
    )

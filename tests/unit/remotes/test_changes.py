"""Events name the tables that a refresh reads; the golden ones were written by real Hive."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.remotes import changes
from airflow_hive_federation.remotes.changes import TableChange, fold


def event(
    event_type: str, table: str | None = "t", *, database: str = "d", **message: Any
) -> SimpleNamespace:
    return SimpleNamespace(
        eventId=1,
        eventType=event_type,
        dbName=database,
        tableName=table,
        message=json.dumps(message),
        messageFormat="json-0.2",
    )


def altered(old: str, new: str, *, old_database: str = "d", database: str = "d") -> SimpleNamespace:
    before = json.dumps({"1": {"str": old}, "2": {"str": old_database}})
    return event("ALTER_TABLE", new, database=database, tableObjBeforeJson=before)


def partition_altered(before: list[str], after: list[str]) -> SimpleNamespace:
    def partition(values: list[str]) -> str:
        return json.dumps({"1": {"lst": ["str", len(values), *values]}})

    return event(
        "ALTER_PARTITION",
        keyValues=dict(zip(("year", "month"), before, strict=True)),
        partitionObjBeforeJson=partition(before),
        partitionObjAfterJson=partition(after),
    )


def test_an_event_of_partitions_names_some() -> None:
    with pytest.raises(changes._CannotTell, match="ADD_PARTITION without partitions"):
        changes._partitions(event("ADD_PARTITION"))


def test_an_event_that_cannot_be_read_disturbs_only_what_it_may_concern() -> None:
    """An event that may concern everything makes the refresh read everything."""
    for unreadable in (
        event("ALTER_TABLE", tableObjBeforeJson="?"),
        event("ALTER_TABLE", database="other", tableObjBeforeJson="?"),  # perhaps a table of ours, renamed
        event("DROP_PARTITION"),
        event("ADD_FOREIGNKEY", database=""),
    ):
        assert fold([unreadable], "d") is None
    for irrelevant in (event("DROP_PARTITION", database="other"), event("COMMIT_TXN", None, database="")):
        assert fold([irrelevant], "d") == {}


def test_partitions_are_named() -> None:
    changes = fold(
        [
            event("ADD_PARTITION", partitions=[{"Year": "2026", "month": "1"}]),
            partition_altered(["2026", "a/b"], ["2026", "a/b"]),
            event("DROP_PARTITION", partitions=[{"year": "2025", "month": "2"}]),
        ],
        "D",
    )
    assert changes is not None
    assert not changes["t"].all_partitions
    assert not changes["t"].partition_names_too
    assert changes["t"].partition_names(["Year", "month"]) == [
        "year=2025/month=2",
        "year=2026/month=1",
        "year=2026/month=a%2Fb",
    ]
    # Of the table that had the name before.
    assert changes["t"].partition_names(["day"]) == []


def test_partitions_with_other_statistics_are_named() -> None:
    keys = {"8": {"lst": ["rec", 2, {"1": {"str": "year"}}, {"1": {"str": "month"}}]}}
    of_partition = event(
        "UPDATE_PART_COL_STAT_EVENT", partVals=["2026", "a/b"], tableObjJson=json.dumps(keys)
    )
    changes = fold([of_partition, event("UPDATE_TBL_COL_STAT_EVENT", "of_table")], "d")
    assert changes is not None
    assert changes["t"].partition_names(["year", "month"]) == ["year=2026/month=a%2Fb"]
    assert not changes["t"].all_partitions
    assert changes["of_table"] == TableChange()
    # Such a message does not name the partition.
    without_keys = event("UPDATE_PART_COL_STAT_EVENT", partVals=["2026"])
    assert fold([without_keys], "d") == {"t": TableChange(all_partitions=True)}


def test_a_partition_that_was_renamed_has_names_compared() -> None:
    changes = fold([partition_altered(["2026", "1"], ["2026", "01"])], "d")
    assert changes is not None
    assert changes["t"].partition_names_too
    assert changes["t"].partition_names(["year", "month"]) == ["year=2026/month=1"]


def test_tables_that_come_and_go_are_looked_at_whole() -> None:
    changes = fold(
        [event("CREATE_TABLE", "a"), event("DROP_TABLE", "b"), altered("c", "c"), altered("e", "f")], "d"
    )
    everything = TableChange(all_partitions=True)
    assert changes == {
        "a": everything,
        "b": everything,
        "c": TableChange(partition_names_too=True),
        "e": everything,
        "f": TableChange(all_partitions=True, partition_names_too=True),
    }


def test_a_table_that_moves_to_another_database_is_gone_here() -> None:
    assert fold([altered("t", "t", database="other")], "d") == {"t": TableChange(all_partitions=True)}
    moved_here = fold([altered("t", "t", old_database="other")], "d")
    assert moved_here is not None
    assert moved_here["t"].all_partitions


def test_what_changes_no_definition_is_left_out() -> None:
    changes = fold(
        [
            event("CREATE_TABLE", database="other"),
            event("OPEN_TXN", None, txnIds=[1]),
            event("ALLOC_WRITE_ID_EVENT", txnIdList=[1], writeIdList=[1]),
            event("COMMIT_COMPACTION_EVENT"),
        ],
        "d",
    )
    assert changes == {}


def test_what_cannot_be_read_means_everything() -> None:
    assert fold([event("NEW_KIND_OF_EVENT")], "d") is None
    assert fold([event("NEW_KIND_OF_EVENT", database="other")], "d") == {}
    assert fold([event("ADD_PARTITION")], "d") is None
    assert fold([event("ALTER_TABLE")], "d") is None
    assert fold([event("DROP_PARTITION", partitions=["x"])], "d") is None

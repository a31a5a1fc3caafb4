"""Partitions whose names passed to others after a dump's moment."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model import events as ev
from airflow_hive_federation.replication.dump.exchanged_partitions import with_exchanged, written_at_once
from airflow_hive_federation.replication.dump.later_events import LaterEvents
from airflow_hive_federation.replication.dump.source import ReplicatedSource
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.manifest import TableChanges, TableEntry
from airflow_hive_federation.replication.format.tables import PartitionLine

ENTRY = TableEntry(name="t", kind=TableKind.FULL_ACID, recorded_changes=TableChanges(renewed=("p=0",)))


def lost(event_id: int, *names: str, table: str = "t", database: str = "db") -> ev.Event:
    return ev.PartitionsChanged(
        event_id=event_id, event_type="?", database=database, table=table, named=names, gone=names
    )


@pytest.fixture
def directory(tmp_path: Path) -> DumpDirectory:
    return DumpDirectory(f"file:{tmp_path}/dump")


def listed(directory: DumpDirectory, *names: str) -> None:
    partitions = [
        types.Partition(values=[name[2:]], sd=types.StorageDescriptor(location="/w")) for name in names
    ]
    lines = (PartitionLine.of(name, partition) for name, partition in zip(names, partitions, strict=True))
    directory.write_partitions("t", lines)


def test_what_was_listed_after_its_name_was_lost_replaces_the_targets_partition(
    directory: DumpDirectory,
) -> None:
    listed(directory, "p=1", "p=2", "p=3", "p=4")
    later = LaterEvents(
        [
            lost(11, "p=1", "p=9"),
            lost(12, "p=2", table="u"),
            lost(12, "p=2", database="other"),
            lost(13, "p=3"),
            lost(14, "p=1"),
        ],
        "db",
    )
    after = with_exchanged(directory, ENTRY, later, listed_after=12)
    assert after == replace(ENTRY, recorded_changes=TableChanges(renewed=("p=0", "p=1")))
    assert with_exchanged(directory, ENTRY, later, listed_after=10) == ENTRY
    # The other partitions may be described by an earlier dump.
    some = replace(ENTRY, recorded_changes=TableChanges(concerned=("p=3", "p=4")))
    assert with_exchanged(directory, some, later, listed_after=12) == some
    assert with_exchanged(directory, some, later, listed_after=13).changes.renewed == ("p=3",)


@dataclass
class Source:
    """A source that loses partitions while its table is listed."""

    losses: Sequence[Sequence[str]]
    event_id: int = 7
    database: str = "db"

    @property
    def pool(self) -> Source:
        return self

    @contextmanager
    def client(self) -> Any:
        yield self

    def get_current_notification_event_id(self) -> int:
        return self.event_id

    def later(self, _client: object, event_id: int) -> LaterEvents:
        events = [lost(8 + number, *names) for number, names in enumerate(self.losses)]
        return LaterEvents([event for event in events if event_id < event.event_id <= self.event_id], "db")


@dataclass(frozen=True)
class Table:
    entry: TableEntry


def test_a_table_is_listed_until_it_loses_no_partition_meanwhile(directory: DumpDirectory) -> None:
    # The third one is not listed, so its loss leaves the list as it is.
    losses = [["p=1"], ["p=2", "p=9"], ["p=9"]]
    source, count = Source(losses=losses), 0

    def write() -> Table:
        nonlocal count
        count += 1
        listed(directory, "p=1", "p=2", "p=3")
        source.event_id += 1
        return Table(ENTRY)

    written, began = written_at_once(cast("ReplicatedSource", source), directory, write)
    assert (written, began, count) == (Table(ENTRY), 9, 3)


def test_a_table_that_loses_partitions_all_the_time_is_an_error(directory: DumpDirectory) -> None:
    source = Source(losses=[["p=2", "p=1"]] * 100)

    def write() -> Table:
        listed(directory, "p=1", "p=2")
        source.event_id += 1
        return Table(ENTRY)

    with pytest.raises(FileVanishedError, match=r"Partitions of db.t were dropped .* was p=1") as error:
        written_at_once(cast("ReplicatedSource", source), directory, write)
    assert (error.value.table, error.value.partitions, error.value.retryable) == (
        "db.t",
        ["p=1", "p=2"],
        True,
    )

"""Partitions that are gone go before the copy if others have their directories now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import TableChanges, TableEntry
from airflow_hive_federation.replication.format.tables import PartitionLine, TableDocument
from airflow_hive_federation.replication.format.unfinished import MADE_ROOM
from airflow_hive_federation.replication.load.making_room import PartitionRoom, needs_room
from airflow_hive_federation.replication.replica.layout import TargetLayout
from tests.support.dumps import POLICY, manifest


def partition(name: str, location: str) -> types.Partition:
    storage = types.StorageDescriptor(location=location)
    return types.Partition(values=[name.partition("=")[2]], sd=storage, parameters={})


class Target:
    """The target's partitions, each in the directory of its name."""

    def __init__(self) -> None:
        self.dropped: list[str] = []

    def get_tables(self, _database: str, _names: Sequence[str]) -> list[types.Table]:
        return [types.Table(tableName="t")]

    def get_partitions_of(self, _database: str, _table: str, names: Sequence[str]) -> list[types.Partition]:
        return [partition(name, f"file:/w/t/{name}") for name in names]

    def drop_partitions(
        self, _database: str, _table: str, names: Sequence[str], *, delete_data: bool
    ) -> None:
        assert delete_data
        self.dropped += names


@pytest.mark.parametrize(
    ("place", "kind", "dropped"),
    [
        ("p=1", TableKind.FULL_ACID, ["p=1"]),
        ("p=1/inside", TableKind.MANAGED, ["p=1"]),
        ("p=2", TableKind.FULL_ACID, []),
        ("p=11", TableKind.FULL_ACID, []),
        ("p=1", TableKind.EXTERNAL, []),
    ],
)
def test_a_gone_partition_whose_directory_has_files_of_another(
    place: str, kind: TableKind, dropped: list[str], tmp_path: Path
) -> None:
    table = types.Table(
        dbName="d",
        tableName="t",
        sd=types.StorageDescriptor(location="file:/src/t"),
        partitionKeys=[types.FieldSchema(name="p", type="string")],
    )
    document = TableDocument(table=table, kind=kind)
    directory = DumpDirectory(f"file:{tmp_path}")
    line = PartitionLine.of("p=2", partition("p=2", f"file:/src/t/{place}"))
    directory.write_partitions("t", [line])
    directory.finish_dump(manifest())
    changes = TableChanges(gone=("p=1", "p=3"))
    entry = TableEntry(name="t", kind=kind, work=TableWork.CONTINUE, recorded_changes=changes)
    target: Any = Target()
    layout = TargetLayout(policy=POLICY, managed="file:/w")
    room = PartitionRoom(target, DumpDirectory(directory.uri), layout, step=lambda *_: None)  # type: ignore[arg-type]
    assert needs_room(entry)
    room.make(document, entry)
    assert target.dropped == dropped
    # A take-over may find the load killed before it writes its copy plan.
    assert directory.exists(MADE_ROOM) == bool(dropped)

"""Partitions and tables that were given other directories."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.dump.relocated import (
    FormerPlaces,
    is_external_now,
    is_relocated,
    refuse_relocated,
    relocated_partitions,
)
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.kinds import TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.format.tables import PartitionLine, TableDocument
from airflow_hive_federation.replication.metadata.table_locations import TableLocations
from tests.support.dumps import manifest

#: Name of a partition → its former location, its present one, and the files at both.
PARTITIONS = {
    "p=same": ("file:/w/t/p=same", "file:/w/t/p=same", "a", "b"),
    "p=away": ("file:/w/t/p=away", "file:/x/away", "a", "b"),
    "p=back": ("hdfs://n/x/back", "file:/w/t/p=back", "a", "b"),
    "p=moved": ("file:/x/moved", "file:/y/moved", "a", "ab"),
    "p=form": ("file:/x/form", "file:///x//form", "a", "b"),
    # The target has two directories for it.
    "p=inside": ("file:/w/t/p=inside", "file:/w/t/of/p", "a", "a"),
    "p=empty": ("file:/w/t/p=empty", "file:/x/empty", "", "b"),
}


def table(location: str, *, keys: bool = True, transactional: bool = True) -> types.Table:
    return types.Table(
        dbName="d",
        tableName="t",
        tableType="MANAGED_TABLE",
        sd=types.StorageDescriptor(location=location),
        partitionKeys=[types.FieldSchema(name="p", type="string")] if keys else [],
        parameters={"transactional": "true"} if transactional else {},
    )


def partition(name: str, location: str) -> types.Partition:
    values = [name.partition("=")[2]]
    return types.Partition(values=values, sd=types.StorageDescriptor(location=location))


def file(directory: str, name: str, path: str) -> VisibleFile:
    path = f"delta_0000001_0000001/{path}"
    return VisibleFile(
        directory=directory, partition=name, path=path, target_path=path, size_bytes=10, modified_ns=5
    )


def dump(root: Path, made: types.Table, place: int) -> DumpDirectory:
    directory = DumpDirectory(f"file:{root}")
    there = {name: (line[place], line[place + 2]) for name, line in PARTITIONS.items() if line[place]}
    directory.write_table(TableDocument(table=made, kind=TableKind.FULL_ACID))
    directory.write_partitions(
        "t", (PartitionLine.of(name, partition(name, at)) for name, (at, _) in there.items())
    )
    directory.write_files("t", (file(at, name, one) for name, (at, files) in there.items() for one in files))
    return directory


@pytest.mark.parametrize("root", ["file:/w/t", "file:///w/t"])
def test_partitions_with_other_directories_and_other_files(tmp_path: Path, root: str) -> None:
    before = dump(tmp_path / "before", table("file:/w/t"), 0)
    before.finish_dump(manifest())
    now = dump(tmp_path / "now", table(root), 1)
    lines = [partition(name, line[1]) for name, line in PARTITIONS.items() if line[1]]
    places = TableLocations(table(root), lines)
    assert relocated_partitions(before, now, "t", places) == {"p=away", "p=back", "p=inside"}


def test_a_table_that_has_moved_alone(tmp_path: Path) -> None:
    """Its partitions stay where they are, and so do their directories on the target."""
    line = PartitionLine.of("p=a", partition("p=a", "file:/w/t/p=a"))
    dumps = []
    for name, root in (("before", "file:/w/t"), ("now", "file:/x/t")):
        directory = DumpDirectory(f"file:{tmp_path}/{name}")
        directory.write_table(TableDocument(table=table(root), kind=TableKind.FULL_ACID))
        directory.write_partitions("t", [line])
        directory.write_files("t", [file("file:/w/t/p=a", "p=a", name)])
        dumps.append(directory)
    dumps[0].finish_dump(manifest())
    places = TableLocations(table("file:/x/t"), [partition("p=a", "file:/w/t/p=a")])
    assert relocated_partitions(*dumps, "t", places) == set()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"path": "delta_0000001_0000001/a"}, False),
        ({"location": "file:/w/t"}, False),
        ({"location": "file:///w//t"}, False),
        ({"looked_at": False}, False),
        ({"looked_at": False, "doubtful": True}, True),
        ({"keys": True}, False),
        ({"transactional": False}, False),
        ({"known": False}, False),
        # A load that was killed has copied files of a third directory.
        ({"location": "file:/w/t", "killed": True}, True),
        ({"known": False, "killed": True}, True),
        ({"location": "file:/w/t", "killed": True, "looked_at": False}, False),
    ],
)
def test_tables_with_other_directories_and_other_files(
    tmp_path: Path, change: dict[str, Any], expected: bool
) -> None:
    found = tmp_path / "new" / change.get("path", "delta_0000002_0000002/a")
    found.parent.mkdir(parents=True)
    found.write_bytes(b"0123456789")
    before = DumpDirectory(f"file:{tmp_path}/before")
    path = "delta_0000001_0000001/a"
    dumped = VisibleFile(
        directory="file:/w/t",
        partition="",
        path=path,
        target_path=path,
        size_bytes=10,
        modified_ns=found.stat().st_mtime_ns,
    )
    before.write_table(TableDocument(table=table("file:/w/t", keys=False), kind=TableKind.FULL_ACID))
    before.write_files("t", [dumped])
    before.finish_dump(manifest())

    class Index(dict[str, DumpDirectory]):
        of = dict.__getitem__

    index: Any = Index({"t": before} if change.get("known", True) else {})
    folded: Any = SimpleNamespace(
        looked_at={"t"} if change.get("looked_at", True) else set(),
        is_doubtful=lambda _: change.get("doubtful", False),
    )
    now = table(
        change.get("location", f"file:{tmp_path}/new"),
        keys=change.get("keys", False),
        transactional=change.get("transactional", True),
    )
    killed = DumpDirectory(f"file:{tmp_path}/killed")
    killed.write_table(TableDocument(table=table(f"file:{tmp_path}/x", keys=False), kind=TableKind.FULL_ACID))
    killed.write_files("t", [replace(dumped, directory=f"file:{tmp_path}/x")])
    killed.finish_dump(manifest(TableEntry(name="t", kind=TableKind.FULL_ACID)))
    unfinished: Any = SimpleNamespace(dumps=[killed] if change.get("killed") else [])
    former = FormerPlaces(table_index=index, unfinished=unfinished)
    assert is_relocated(now, folded, former) is expected


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({}, True),
        ({"location": "file:///w//t"}, False),
        ({"keys": True}, False),
        ({"transactional": False}, False),
        ({"work": TableWork.REPLACE}, False),
        ({"was_transactional": False}, False),
    ],
)
def test_a_directory_that_is_another_one_than_at_the_moment(change: dict[str, Any], refused: bool) -> None:
    shape = {name: change[name] for name in ("keys", "transactional") if name in change}
    planned = table("file:/w/t", **{"keys": False, **shape})
    if not change.get("was_transactional", True):
        planned = table("file:/w/t", keys=False, transactional=False)
    found = table(change.get("location", "file:/x/t"), **{"keys": False, **shape})
    with (
        pytest.raises(FileVanishedError, match="d\\.t was given another directory")
        if refused
        else nullcontext()
    ):
        refuse_relocated(planned, found, change.get("work", TableWork.CONTINUE))


@pytest.mark.parametrize(
    ("former", "external", "looked_at", "expected"),
    [
        ((TableKind.MANAGED,), True, True, True),
        ((TableKind.FULL_ACID,), True, True, True),
        # A load that was killed had it as external, or as managed.
        ((TableKind.MANAGED, TableKind.EXTERNAL), True, True, True),
        ((TableKind.EXTERNAL, TableKind.MANAGED), True, True, True),
        ((TableKind.EXTERNAL,), True, True, False),
        ((TableKind.MANAGED,), False, True, False),
        ((TableKind.MANAGED,), True, False, False),
        ((TableKind.VIEW,), True, True, False),
        ((), True, True, False),
    ],
)
def test_managed_tables_that_become_external(
    former: tuple[TableKind, ...], external: bool, looked_at: bool, expected: bool, tmp_path: Path
) -> None:
    dumps = []
    for number, kind in enumerate(former):
        directory = DumpDirectory(f"file:{tmp_path}/{number}")
        directory.write_table(TableDocument(table=table("file:/w/t", keys=False), kind=kind))
        directory.finish_dump(manifest())
        dumps.append(DumpDirectory(directory.uri))
    places: Any = SimpleNamespace(of=lambda _: iter(dumps))
    folded: Any = SimpleNamespace(looked_at={"t"} if looked_at else set(), is_doubtful=lambda _: False)
    now = table("file:/w/t", keys=False, transactional=False)
    if external:
        now.tableType, now.parameters = "EXTERNAL_TABLE", {"EXTERNAL": "TRUE"}
    assert is_external_now(now, folded, places) is expected

"""Dumps that describe some partitions of a table, and refer to earlier ones for the others."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import DumpCorruptError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import CopiedFile, VisibleFile
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import TableChanges, TableEntry
from airflow_hive_federation.replication.format.tables import PartitionLine, PartitionTotals
from airflow_hive_federation.replication.replica.table_index import TableIndex
from tests.support.dumps import manifest


def line(name: str, made_s: int) -> PartitionLine:
    partition = types.Partition(values=[name.partition("=")[2]], createTime=made_s)
    return PartitionLine.of(name, partition)


def file(partition: str, path: str) -> VisibleFile:
    place = f"file:/t/{partition}"
    return VisibleFile(
        directory=place, partition=partition, path=path, target_path=path, size_bytes=1, modified_ns=1
    )


def dumped(
    root: Path,
    name: str,
    names: Sequence[str],
    *,
    made_s: int,
    concerned: Sequence[str] | None = None,
    rest: Sequence[DumpDirectory] = (),
    totals: Sequence[str] | None = None,
) -> DumpDirectory:
    """A dump that describes these partitions, each with a file named after the dump."""
    directory = DumpDirectory(f"file:{root}/{name}")
    directory.write_partitions("t", [line(partition, made_s) for partition in names])
    directory.write_files("t", [file(partition, name) for partition in names])
    if totals is not None:
        directory.write_totals("t", [PartitionTotals(partition, 1, 1) for partition in totals])
    changes = TableChanges(concerned=tuple(concerned)) if concerned is not None else None
    entry = TableEntry(
        name="t",
        kind=TableKind.FULL_ACID,
        work=TableWork.CONTINUE if changes else None,
        recorded_changes=changes,
        rest=tuple(dump.uri for dump in rest),
    )
    kind = DumpKind.INCREMENT if changes else DumpKind.BOOTSTRAP
    directory.finish_dump(manifest(entry, kind=kind))
    directory.add_digests("t", [CopiedFile(uri=f"file:/t/{one}/{name}", digest="0" * 64) for one in names])
    return DumpDirectory(directory.uri)


@pytest.fixture
def chain(tmp_path: Path) -> list[DumpDirectory]:
    """Three dumps, the latest first: the second changed ``p=2`` and lost ``p=3``, the last made ``p=4``."""
    first = dumped(tmp_path, "a", ["p=1", "p=2", "p=3"], made_s=1, totals=["p=1", "p=2", "p=3"])
    second = dumped(tmp_path, "b", ["p=2"], made_s=2, concerned=["p=2", "p=3"], rest=[first])
    third = dumped(
        tmp_path,
        "c",
        ["p=4"],
        made_s=3,
        concerned=["p=4"],
        rest=[second, first],
        totals=["p=1", "p=2", "p=4"],
    )
    return [third, second, first]


def test_the_dumps_are_read_as_one(chain: list[DumpDirectory]) -> None:
    assert [(one.name, one.created_s) for one in chain[0].partitions("t")] == [
        ("p=4", 3),
        ("p=2", 2),
        ("p=1", 1),
    ]
    assert [one.uri for one in chain[0].files("t")] == ["file:/t/p=4/c", "file:/t/p=2/b", "file:/t/p=1/a"]
    assert [one.name for one in chain[1].partitions("t")] == ["p=2", "p=1"]
    assert [one.name for one in chain[2].partitions("t")] == ["p=1", "p=2", "p=3"]


class ReadMeanwhile(DumpDirectory):
    """A dump of which another thread reads the partitions as soon as one has read the manifest's digests."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_expected" and value is not None:
            self.meanwhile = [one.name for one in self.partitions("t")]


def test_a_thread_that_reads_while_another_opens_the_dump_reads_all_partitions(
    chain: list[DumpDirectory],
) -> None:
    dump = ReadMeanwhile(chain[0].uri)
    dump.manifest()
    assert dump.meanwhile == ["p=4", "p=2", "p=1"]


def test_a_load_reads_its_own_partitions_only(chain: list[DumpDirectory]) -> None:
    for older in chain[1:]:
        shutil.rmtree(older.uri.removeprefix("file:"))
    assert [one.name for one in chain[0].partitions("t", only=["p=4"])] == ["p=4"]
    assert [one.path for one in chain[0].files("t", only=["p=4"])] == ["c"]
    assert list(chain[0].files("t", only=["p=1"])) == []


def test_names_come_from_the_totals_or_from_the_lines(chain: list[DumpDirectory]) -> None:
    assert chain[0].partition_names("t") == ["p=1", "p=2", "p=4"]
    assert chain[1].totals("t") is None
    assert chain[1].partition_names("t") == ["p=2", "p=1"]


def test_digests_and_uris_are_those_of_all_of_them(chain: list[DumpDirectory]) -> None:
    index = TableIndex(chain[0])
    assert index.uris == {dump.uri for dump in chain}
    wanted = {one.uri for one in chain[0].files("t")}
    assert wanted <= index.digests("t").keys()


@pytest.mark.parametrize("gone", [1, 2])
def test_a_dump_that_is_gone_is_named(chain: list[DumpDirectory], gone: int) -> None:
    shutil.rmtree(chain[gone].uri.removeprefix("file:"))
    with pytest.raises(DumpCorruptError, match=f"refers to dump {chain[gone].uri} for partitions of table t"):
        list(chain[0].partitions("t"))


def test_a_dump_that_lacks_the_table_is_named(tmp_path: Path) -> None:
    other = DumpDirectory(f"file:{tmp_path}/a")
    other.finish_dump(manifest())
    later = dumped(tmp_path, "b", ["p=1"], made_s=1, concerned=["p=1"], rest=[other])
    with pytest.raises(DumpCorruptError, match="does not describe the table"):
        list(later.files("t"))

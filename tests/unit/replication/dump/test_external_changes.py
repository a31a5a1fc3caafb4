"""External tables change without events: their files are compared with those of the dump."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidTxns
from airflow_hive_federation.replication.dump.contents import visible_files
from airflow_hive_federation.replication.dump.external_changes import files_changed
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.tables import PartitionLine, TableDocument
from airflow_hive_federation.replication.metadata.definitions import name_of
from airflow_hive_federation.replication.metadata.table_locations import TableLocations
from tests.support.dumps import manifest


def dumped(root: Path, places: dict[str, Path], *, partitioned: bool) -> DumpDirectory:
    """A dump of the table, as increments write it."""
    storage = types.StorageDescriptor(cols=[], location=f"file:{root}/table", numBuckets=-1)
    keys = [types.FieldSchema(name="p", type="string")] if partitioned else []
    table = types.Table(
        dbName="d",
        tableName="x",
        sd=storage,
        partitionKeys=keys,
        parameters={"EXTERNAL": "TRUE"},
        tableType="EXTERNAL_TABLE",
    )
    partitions = [
        types.Partition(values=[value], sd=types.StorageDescriptor(location=f"file:{place}"), parameters={})
        for value, place in places.items()
        if partitioned
    ]
    directory = DumpDirectory(f"file:{root}/dump")
    directory.write_table(TableDocument(table=table, kind=TableKind.EXTERNAL))
    directory.write_partitions(
        "x", (PartitionLine.of(name_of(table, partition), partition) for partition in partitions)
    )
    files = visible_files(table, TableLocations(table, partitions), None, ValidTxns(high_watermark=1))
    directory.write_files("x", files)
    directory.finish_dump(manifest())
    return DumpDirectory(directory.uri)


def touch(file: Path) -> None:
    os.utime(file, ns=(1, 1))


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.write_text("longer", encoding="utf-8"),
        touch,
        lambda file: file.unlink(),
        lambda file: file.with_name("more").touch(),
        lambda file: file.rename(file.with_name("other")),
    ],
    ids=["size", "time", "removed", "added", "renamed"],
)
def test_a_change_of_a_file_is_found(
    tmp_path: Path, change: Callable[[Path], None], *, partitioned: bool
) -> None:
    inside, outside = tmp_path / "table" / "p=1", tmp_path / "elsewhere"
    for place in (inside, outside):
        place.mkdir(parents=True)
        (place / "file").write_text("1\n", encoding="utf-8")
    dump = dumped(tmp_path, {"1": inside, "2": outside}, partitioned=partitioned)
    assert not files_changed(dump, "x")
    change((outside if partitioned else inside) / "file")
    assert files_changed(dump, "x")


def test_files_that_are_not_finished_are_neither_dumped_nor_a_change(tmp_path: Path) -> None:
    inside = tmp_path / "table"
    unfinished = inside / ".hive-staging_hive_1" / "-ext-10000" / "000000_0"
    unfinished.parent.mkdir(parents=True)
    (inside / "file").write_text("1\n", encoding="utf-8")
    unfinished.touch()
    dump = dumped(tmp_path, {}, partitioned=False)
    assert [file.path for file in dump.files("x")] == ["file"]
    touch(unfinished)
    assert not files_changed(dump, "x")
    unfinished.rename(inside / "000000_0")
    assert files_changed(dump, "x")

"""Partitions that have taken the names of others, found without events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.dump.other_partitions import other_partitions
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.tables import PartitionLine
from tests.support.dumps import manifest


def dump(root: Path, partitions: dict[str, int], *files: VisibleFile) -> DumpDirectory:
    directory = DumpDirectory(f"file:{root}")
    lines = (
        PartitionLine.of(name, types.Partition(createTime=time, values=[name.partition("=")[2]]))
        for name, time in partitions.items()
    )
    directory.write_partitions("t", lines)
    directory.write_files("t", files)
    return directory


def file(partition: str, name: str, **more: Any) -> VisibleFile:
    values = {"size_bytes": 10, "modified_ns": 5, **more}
    path = f"delta_0000001_0000001/{name}"
    return VisibleFile(
        directory=f"file:/w/t/{partition}", partition=partition, path=path, target_path=path, **values
    )


def test_partitions_that_were_made_at_another_time_or_have_other_files_are_others(tmp_path: Path) -> None:
    before = dump(
        tmp_path / "before",
        {"p=same": 1, "p=again": 1, "p=gone": 1, "p=renamed": 1, "p=longer": 1, "p=streamed": 1},
        file("p=same", "a"),
        file("p=renamed", "a"),
        file("p=longer", "a"),
        file("p=streamed", "a", side_file="a_flush_length"),
        file("p=streamed", "b", filtered=True),
    )
    before.finish_dump(manifest())
    now = dump(
        tmp_path / "now",
        {"p=same": 1, "p=again": 2, "p=new": 2, "p=renamed": 1, "p=longer": 1, "p=streamed": 1},
        file("p=same", "a"),
        file("p=same", "new"),
        file("p=renamed", "a", modified_ns=4),
        file("p=longer", "a", size_bytes=11),
        file("p=streamed", "a", size_bytes=11),
        file("p=streamed", "b", size_bytes=11, filtered=True),
    )
    assert other_partitions(before, now, "t") == {"p=again", "p=renamed", "p=longer"}

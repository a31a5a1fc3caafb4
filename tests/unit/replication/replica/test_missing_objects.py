"""A target that lacks what its last dump has is not let go without a word."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.replica import missing_objects as module
from airflow_hive_federation.replication.replica.foreign_writes import names_digest
from airflow_hive_federation.replication.replica.missing_objects import missing_objects
from tests.support.dumps import POLICY, manifest

KNOWN = ["p=1", "p=2", "p=3"]


@pytest.mark.parametrize(
    ("tables", "partitions", "missing"),
    [
        ({"plain": False, "parted": True, "view": False, "added": True}, KNOWN, []),
        # A partition that a load has made before it was killed is none that is missing.
        ({"plain": False, "parted": True, "view": False}, [*KNOWN, "p=4"], []),
        ({"plain": False, "parted": True, "view": False}, ["p=3", "p=4"], ["parted/p=1", "parted/p=2"]),
        ({"parted": True}, KNOWN, ["plain", "view"]),
        ({}, [], ["parted", "plain", "view"]),
    ],
)
def test_what_a_target_lacks(
    tables: dict[str, bool],
    partitions: list[str],
    missing: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dump = DumpDirectory(f"file:{tmp_path}/1-2-3")
    kinds = {"plain": TableKind.FULL_ACID, "parted": TableKind.FULL_ACID, "view": TableKind.VIEW}
    dump.finish_dump(
        manifest(
            *(
                TableEntry(name=name, kind=kind, partition_names=names_digest(KNOWN))
                for name, kind in kinds.items()
            )
        )
    )
    monkeypatch.setattr(DumpDirectory, "partition_names", lambda *_: KNOWN)
    client: Any = SimpleNamespace(
        get_tables=lambda _, names: [
            SimpleNamespace(tableName=name, partitionKeys=["p"] if tables[name] else None)
            for name in names
            if name in tables
        ],
        list_partition_names=lambda *_: partitions,
    )
    monkeypatch.setattr(module, "loaded_dump", lambda *_: dump.uri)
    assert missing_objects(client, POLICY) == missing

"""A load drops those partitions of a table that its dump lets go, and no others."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.load.convergence import TableConvergence
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.replication.replica.markers import object_markers
from tests.support.dumps import manifest

POLICY = ReplicationPolicy(name="p", source_database="db", dump_root="file:/dumps")


class Target:
    """A metastore that has the table with two partitions, neither of which the source has."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.dropped: list[str] = []

    def get_table(self, _database: str, _table: str) -> Any:
        return self._table

    def get_table_constraints(self, _database: str, _table: str) -> Any:
        return types.SQLAllTableConstraints()

    def list_partition_names(self, _database: str, _table: str) -> list[str]:
        return ["p=1", "p=2"]

    def drop_partitions(self, _database: str, _table: str, names: list[str], *, delete_data: bool) -> None:
        assert delete_data
        self.dropped += names


@pytest.mark.parametrize(
    ("gone", "dropped"),
    [(frozenset(), []), ({"p=2", "p=3"}, ["p=2"]), (None, ["p=1", "p=2"])],
)
def test_partitions_that_the_source_does_not_list(
    tmp_path: Path, gone: Collection[str] | None, dropped: list[str]
) -> None:
    table = types.Table(
        dbName="db",
        tableName="t",
        sd=types.StorageDescriptor(cols=[], location="file:/w/t", numBuckets=-1),
        partitionKeys=[types.FieldSchema(name="p", type="string")],
        parameters={},
        tableType="MANAGED_TABLE",
    )
    document = TableDocument(table=table, kind=TableKind.MANAGED)
    directory = DumpDirectory(f"file:{tmp_path}")
    directory.write_partitions("t", ())
    directory.finish_dump(manifest())
    layout = TargetLayout(policy=POLICY, managed="file:/w")
    marks = object_markers(POLICY.name, directory.uri, 1)
    target = Target(layout.table(document, marks))
    convergence = TableConvergence(
        target,  # type: ignore[arg-type]
        layout,
        DumpDirectory(directory.uri),
        document=document,
        parameters=marks,
        tables={"t"},
    )
    convergence.shape()
    convergence.drop_partitions(gone)
    assert target.dropped == dropped

"""Assignments of tables beside others who assign them."""

from __future__ import annotations

from typing import Any

from airflow_hive_federation.clusters.assignment import assign_tables
from airflow_hive_federation.clusters.metadata import PRIMARY
from airflow_hive_federation.clusters.registry import read_registry
from airflow_hive_federation.errors import MetastoreServerError
from airflow_hive_federation.metastore.idl import types

REGISTRY = """{"hive.cluster.properties": {
    "C1": {"fileSystem": "file:/c1", "jobTracker": "spark_1"},
    "C2": {"fileSystem": "file:/c2", "jobTracker": "spark_2"}
}, "hive.default.cluster.name": "C1"}"""


def table(**parameters: str) -> types.Table:
    return types.Table(
        dbName="d",
        tableName="t",
        tableType="MANAGED_TABLE",
        sd=types.StorageDescriptor(location="file:/c1/d/t"),
        partitionKeys=[],
        parameters={"transient_lastDdlTime": "1", **parameters},
    )


class Overtaken:
    """A metastore whose only table another client puts into C2 before it can be altered."""

    def list_databases(self) -> list[str]:
        return ["d"]

    def list_tables(self, _database: str) -> list[str]:
        return ["t"]

    def get_tables(self, _database: str, _names: Any) -> list[types.Table]:
        return [table()]

    def get_table(self, _database: str, _name: str) -> types.Table:
        return table(**{PRIMARY: "C2"})

    def get_config_value(self, _name: str, default: str) -> str:
        return default

    def lock(self, _components: Any) -> types.LockResponse:
        return types.LockResponse(lockid=1, state=types.LockState.ACQUIRED)

    def unlock(self, lock_id: int) -> None:
        assert lock_id == 1

    def alter_table(self, *_: Any, **__: Any) -> None:
        raise MetastoreServerError("the table has been modified")


def test_a_table_that_another_assigns_meanwhile_is_elsewhere() -> None:
    client: Any = Overtaken()
    report = assign_tables(client, read_registry(REGISTRY, origin="the test"))
    assert (report.changed, report.elsewhere) == ([], {"d.t": "C2"})

"""A metastore in memory with tables of two clusters, C1 and C2, for looks and routes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from airflow_hive_federation.clusters.metadata import (
    ClusterMetadata,
    Secondary,
    SourceMark,
    metadata_mark,
    place_mark,
    write_metadata,
)
from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidWriteIds


class Warehouse:
    """A metastore with tables by database, and partitions by table; it counts the calls for tables."""

    def __init__(self) -> None:
        self.tables: dict[str, list[types.Table]] = {}
        self.partitions: dict[str, list[types.Partition]] = {}
        self.calls = 0
        self.settings: MetastoreSettings | None = None

    @property
    def client(self) -> MetastoreClient:
        return cast("MetastoreClient", self)

    def list_databases(self) -> list[str]:
        return list(self.tables)

    def get_database(self, name: str) -> types.Database:
        if name not in self.tables:
            raise NoSuchObjectError(f"no {name}")
        return types.Database(name=name)

    def list_tables(self, database: str) -> list[str]:
        return [str(table.tableName) for table in self.tables[database]]

    def get_tables(self, database: str, names: Sequence[str]) -> list[types.Table]:
        self.calls += 1
        return [table for table in self.tables[database] if table.tableName in names]

    def get_table(self, database: str, name: str) -> types.Table:
        for table in self.get_tables(database, [name]):
            return table
        raise NoSuchObjectError(f"no {name}")

    def call(self, method: str, *_: str) -> str:
        assert method == "get_config_value"
        return ""  # It keeps no events.

    def iter_partitions(self, database: str, name: str) -> Iterator[types.Partition]:
        yield from self.partitions[f"{database}.{name}"]


def table(
    name: str, *, primary: str | None = None, keys: Sequence[str] = (), **parameters: str
) -> types.Table:
    described = types.Table(
        dbName="d",
        tableName=name,
        tableType="MANAGED_TABLE",
        partitionKeys=[types.FieldSchema(name=key, type="string") for key in keys],
        sd=types.StorageDescriptor(location=f"/one/{name}"),
        parameters=parameters,
    )
    described.parameters = write_metadata(parameters, ClusterMetadata(primary=primary))
    return described


def copied(
    described: types.Table | types.Partition, *, stale: bool = False, snapshot: ValidWriteIds | None = None
) -> None:
    """Give a table or partition a copy in C2; a stale one is of another state of the primary.

    A copy of a transactional one has a snapshot.
    """
    present = metadata_mark(described) if snapshot is None else place_mark(described)
    mark = SourceMark(
        metadata="older" if stale else present,
        files=1,
        size_bytes=1,
        content="c",
        listing="l",
    )
    primary = (described.parameters or {}).get("hive.cluster.primary")
    copy = Secondary(location="/two/copy", source=mark, snapshot=snapshot)
    metadata = ClusterMetadata(primary=primary, secondaries={"C2": copy})
    described.parameters = write_metadata(described.parameters, metadata)


def partition(day: str, **parameters: str) -> types.Partition:
    storage = types.StorageDescriptor(location=f"/one/parted/{day}")
    return types.Partition(values=[day], sd=storage, parameters=parameters)

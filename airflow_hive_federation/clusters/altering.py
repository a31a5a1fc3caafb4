"""Writes cluster metadata into parameters of tables and partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from airflow_hive_federation.clusters.metadata import ClusterMetadata, read_metadata, write_metadata
from airflow_hive_federation.errors import MetastoreServerError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import partition_name

Change = Callable[[ClusterMetadata], ClusterMetadata]

#: Every client of Hive's and Spark's sets it with each change, in seconds.
_CHANGED = "transient_lastDdlTime"
_TRIES = 5
#: The metastore would otherwise count files of its own accord, and take statistics for outdated.
_ENVIRONMENT = {"DO_NOT_UPDATE_STATS": "true"}


def full_name(table: types.Table) -> str:
    """``database.table``."""
    return f"{table.dbName}.{table.tableName}"


def object_name(table: types.Table, partition: types.Partition | None = None) -> str:
    """``database.table``, or ``database.table/day=2026-01-01``."""
    if partition is None:
        return full_name(table)
    keys = [key.name or "" for key in table.partitionKeys or ()]
    return f"{full_name(table)}/{partition_name(keys, partition.values or [])}"


def alter_table_metadata(client: MetastoreClient, table: types.Table, change: Change) -> types.Table:
    """Change the cluster metadata of a table; nothing is written if it stays the same.

    The table is altered only if nobody has altered it since it was read; else it is read anew.

    :param table: the table as it was read.
    :return: the table as it is now.
    :raises ClusterMetadataError: the metadata that it has is damaged.
    :raises MetastoreError: the metastore refuses, or others keep altering the table.
    """
    database, name = table.dbName or "", table.tableName or ""
    for tries_left in reversed(range(_TRIES)):
        before = dict(table.parameters or {})
        present = read_metadata(before, full_name(table))
        if (wanted := change(present)) == present:
            return table
        table.parameters = write_metadata(before, wanted)
        changed = before.get(_CHANGED)
        try:
            client.alter_table(
                database,
                name,
                table,
                environment=_ENVIRONMENT,
                expected_parameter=None if changed is None else (_CHANGED, changed),
            )
        except MetastoreServerError as error:
            if "has been modified" not in error.message or not tries_left:
                raise
            table = client.get_table(database, name)
            continue
        return table
    raise AssertionError  # the last try has returned or raised


def alter_partition_metadata(
    client: MetastoreClient, table: types.Table, changes: Mapping[str, Change]
) -> list[types.Partition]:
    """Change the cluster metadata of partitions; those that stay the same, or are gone, are not written.

    They are read just before: the metastore has no way to say that a partition must be as it was read.

    :param changes: by name of the partition.
    :return: the partitions that were written.
    :raises ClusterMetadataError: the metadata that one has is damaged; none is written then.
    :raises MetastoreError: the metastore refuses.
    """
    database, name = table.dbName or "", table.tableName or ""
    keys = [key.name or "" for key in table.partitionKeys or ()]
    written: list[types.Partition] = []
    for one in client.get_partitions_of(database, name, list(changes)):
        present = read_metadata(one.parameters, object_name(table, one))
        wanted = changes[partition_name(keys, one.values or [])](present)
        if wanted != present:
            one.parameters = write_metadata(one.parameters, wanted)
            written.append(one)
    if written:
        client.alter_partitions(database, name, written, environment=_ENVIRONMENT)
    return written


def partitions_by_name(
    client: MetastoreClient, table: types.Table, names: Sequence[str] | None = None
) -> dict[str, types.Partition]:
    """The partitions of a table by name, all of them or some."""
    keys = [key.name or "" for key in table.partitionKeys or ()]
    database, name = table.dbName or "", table.tableName or ""
    found = (
        client.iter_partitions(database, name)
        if names is None
        else client.get_partitions_of(database, name, names)
    )
    return {partition_name(keys, one.values or []): one for one in found}

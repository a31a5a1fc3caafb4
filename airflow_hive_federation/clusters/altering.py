"""Writes cluster metadata into parameters of tables and partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from airflow_hive_federation.clusters.locking import altering
from airflow_hive_federation.clusters.metadata import ClusterMetadata, read_metadata, write_metadata
from airflow_hive_federation.errors import MetastoreServerError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.calls.base import batches
from airflow_hive_federation.metastore.calls.partitions import PARTITIONS_A_CALL
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import partition_name
from airflow_hive_federation.storage.filesystem import canonical

Change = Callable[[ClusterMetadata], ClusterMetadata]

#: The metastore sets it with each change of Hive's and Spark's, in seconds of its clock.
_CHANGED = "transient_lastDdlTime"
_TRIES = 5
#: So far, in seconds, may the metastore's clock be from this machine's.
_SKEW_S = 10.0
#: A little more than the second in which two changes have one time.
_SECOND_S = 1.05
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

    :param table: the table as it was read.
    :return: the table as it is now.
    :raises ClusterMetadataError: the metadata that it has is damaged.
    :raises LockTimeoutError: others hold the lock of its cluster metadata.
    :raises MetastoreError: the metastore refuses, or others keep altering the table.
    """
    present = read_metadata(table.parameters, full_name(table))
    if change(present) == present:
        return table

    def changed(now: types.Table) -> types.Table | None:
        present = read_metadata(now.parameters, full_name(now))
        wanted = change(present)
        if wanted == present:
            return None
        now.parameters = write_metadata(now.parameters, wanted)
        return now

    return alter_table(client, full_name(table), changed)


def alter_table(
    client: MetastoreClient, name: str, change: Callable[[types.Table], types.Table | None]
) -> types.Table:
    """Change a table; no change that others make meanwhile is lost.

    This package's own changes exclude each other by a lock. Those of others show by the time of the last one,
    which the metastore compares when it alters the table. That time has whole seconds, so the table is read
    when the second of its last change is over.

    :param name: ``database.table``.
    :param change: returns the table as it shall be, or ``None`` to leave it.
    :return: the table as it is now.
    """
    database, _, table_name = name.partition(".")
    with altering(client, name):
        for tries_left in reversed(range(_TRIES)):
            table = _settled(client, database, table_name)
            changed = (table.parameters or {}).get(_CHANGED)
            wanted = change(table)
            if wanted is None:
                return table
            try:
                client.alter_table(
                    database,
                    table_name,
                    wanted,
                    environment=_ENVIRONMENT,
                    expected_parameter=None if changed is None else (_CHANGED, changed),
                )
            except MetastoreServerError as error:
                if "has been modified" not in error.message or not tries_left:
                    raise
                continue
            return wanted
    raise AssertionError  # the last try has returned or raised


def _settled(client: MetastoreClient, database: str, name: str) -> types.Table:
    """Read a table when each further change gets another time than the last one has."""
    table = client.get_table(database, name)
    for _ in range(_TRIES):
        seen = (table.parameters or {}).get(_CHANGED, "")
        if not seen.isdecimal() or int(seen) < time.time() - _SKEW_S:
            return table
        time.sleep(_SECOND_S)
        table = client.get_table(database, name)
        # The metastore's clock was at this second before the wait, and is beyond it now.
        if (table.parameters or {}).get(_CHANGED) == seen:
            return table
    return table


def alter_partition_metadata(
    client: MetastoreClient, table: types.Table, changes: Mapping[str, Change]
) -> list[types.Partition]:
    """Change the cluster metadata of partitions; those that stay the same, or are gone, are not written.

    :param changes: by name of the partition.
    :return: the partitions that were written.
    :raises ClusterMetadataError: the metadata that one has is damaged.
    :raises LockTimeoutError: others hold the lock of the table's cluster metadata, or write a partition.
    :raises MetastoreError: the metastore refuses.
    """
    keys = [key.name or "" for key in table.partitionKeys or ()]

    def changed(now: types.Partition) -> types.Partition | None:
        present = read_metadata(now.parameters, object_name(table, now))
        wanted = changes[partition_name(keys, now.values or [])](present)
        if wanted == present:
            return None
        now.parameters = write_metadata(now.parameters, wanted)
        return now

    return alter_partitions(client, table, list(changes), changed)


def alter_partitions(
    client: MetastoreClient,
    table: types.Table,
    names: Sequence[str],
    change: Callable[[types.Partition], types.Partition | None],
    *,
    locked: bool = False,
) -> list[types.Partition]:
    """Change partitions, many at once.

    The metastore has no way to say that a partition must be as it was read. So this package's changes, and
    the statements of Hive's that write these partitions, are kept out by locks.

    :param change: returns the partition as it shall be, or ``None`` to leave it.
    :param locked: the caller keeps the statements of Hive's out.
    :return: the partitions that were written.
    """
    database, name = table.dbName or "", table.tableName or ""
    written: list[types.Partition] = []
    # The writers of a transactional table alter no partition; an open transaction may last.
    locks = not locked and (table.parameters or {}).get("transactional", "").lower() != "true"
    for some in batches(names, PARTITIONS_A_CALL):
        with altering(client, full_name(table), some if locks else ()):
            wanted = [change(one) for one in client.get_partitions_of(database, name, some)]
            altered = [one for one in wanted if one is not None]
            if altered:
                client.alter_partitions(database, name, altered, environment=_ENVIRONMENT)
        written += altered
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


def relocate(described: types.Table | types.Partition, location: str) -> None:
    """Give a table or partition another location, as Spark reads its own tables, too."""
    assert described.sd is not None
    former, described.sd.location = described.sd.location, location
    properties = (described.sd.serdeInfo and described.sd.serdeInfo.parameters) or {}
    # Spark reads its own tables at the place that this property names, whatever the location is.
    for key in [key for key in properties if key.lower() == "path"]:
        if former and canonical(properties[key]) == canonical(former):
            properties[key] = location

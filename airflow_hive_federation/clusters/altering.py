"""Writes cluster metadata into parameters of tables and partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from airflow_hive_federation.clusters.locking import altering
from airflow_hive_federation.clusters.metadata import ClusterMetadata, read_metadata, write_metadata
from airflow_hive_federation.errors import CopyRefusedError, MetastoreServerError, NoSuchObjectError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.calls.base import batches
from airflow_hive_federation.metastore.calls.partitions import PARTITIONS_PER_CALL
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import partition_name
from airflow_hive_federation.storage.filesystem import canonical
from airflow_hive_federation.transactions.positions import CHANGED, positions, still, unguarded
from airflow_hive_federation.transactions.snapshots import is_transactional, take_snapshots

Change = Callable[[ClusterMetadata], ClusterMetadata]

_ACCURATE = "COLUMN_STATS_ACCURATE"
_TRIES = 5
#: The largest difference, in seconds, between the metastore's clock and the local clock.
_SKEW_S = 10.0
#: Slightly more than one second, within which two changes get the same timestamp.
_SECOND_S = 1.05
#: Without this setting, the metastore would list the files itself and mark statistics as outdated.
_ENVIRONMENT = {"DO_NOT_UPDATE_STATS": "true"}


def full_name(table: types.Table) -> str:
    """Return ``database.table``."""
    return f"{table.dbName}.{table.tableName}"


def split_name(table: str) -> tuple[str, str]:
    """Divide ``database.table`` into database and table.

    :raises CopyRefusedError: the text has another form.
    """
    database, dot, name = table.partition(".")
    if not dot or not name or "." in name:
        raise CopyRefusedError(
            f"{table!r} is no name of a table.", remedy="Write database.table.", table=table, partition=None
        )
    return database.lower(), name.lower()


def requested_table(client: MetastoreClient, table: str) -> types.Table:
    """Read the table that a user names.

    :param table: ``database.table``.
    :raises CopyRefusedError: the text has another form.
    :raises NoSuchObjectError: the metastore has no such table.
    """
    database, name = split_name(table)
    try:
        return client.get_table(database, name)
    except NoSuchObjectError as error:
        raise NoSuchObjectError(
            f"There is no table {database}.{name}: {error.message}",
            remedy="Correct the name, or that of the metastore.",
            **{**error.facts, "table": f"{database}.{name}"},
        ) from error


def object_name(table: types.Table, partition: types.Partition | None = None) -> str:
    """Return ``database.table``, or ``database.table/day=2026-01-01``."""
    if partition is None:
        return full_name(table)
    keys = [key.name or "" for key in table.partitionKeys or ()]
    return f"{full_name(table)}/{partition_name(keys, partition.values or [])}"


def alter_table_metadata(client: MetastoreClient, table: types.Table, change: Change) -> types.Table:
    """Change the cluster metadata of a table; write nothing if the metadata stays the same.

    :param table: the table as the caller read it.
    :return: the table in its present state.
    :raises ClusterMetadataError: the present metadata is damaged.
    :raises LockTimeoutError: another process holds the lock of its cluster metadata.
    :raises MetastoreError: the metastore refuses, or other processes keep altering the table.
    """
    present = read_metadata(table.parameters, full_name(table))
    if change(present) == present:
        return table

    def changed(now: types.Table) -> types.Table | None:
        present = read_metadata(now.parameters, full_name(now))
        changed_metadata = change(present)
        if changed_metadata == present:
            return None
        now.parameters = write_metadata(now.parameters, changed_metadata)
        return now

    return alter_table(client, full_name(table), changed)


def alter_table(
    client: MetastoreClient,
    name: str,
    change: Callable[[types.Table], types.Table | None],
    *,
    check: Callable[[], None] = unguarded,
) -> types.Table:
    """Change a table without losing concurrent changes of other processes.

    A lock prevents concurrent changes of cluster metadata by this package. Changes by others alter the time
    of the last change, which the metastore compares when it alters the table. That time has whole seconds, so
    the table is read after the second of its last change has ended. Commits of streams leave that time as it
    is: those that would move a position of the table wait, and are waited for.

    :param name: ``database.table``.
    :param change: returns the changed table, or ``None`` to leave the table as it is.
    :param check: is called right before each alteration; raises if the caller's transaction may have ended.
    :return: the table in its present state.
    :raises LockTimeoutError: another process holds the lock of the cluster metadata, or transactions that
        move positions of the table do not end in time.
    :raises LockLostError: this process was suspended, and other processes may have altered the table.
    """
    database, _, table_name = name.partition(".")
    held: frozenset[str] = frozenset()
    tries_left = _TRIES
    while True:
        # A stream waits for the other lock while it holds the fence of its position.
        with still(client, database, table_name, held) as check_fences, altering(client, name) as check_alone:
            table = _settled(client, database, table_name)
            if not positions(table).keys() <= held:
                held = frozenset(positions(table))
                continue
            expected = _compared(table)
            altered = change(table)
            if altered is None:
                return table
            tries_left -= 1
            check()
            check_alone()
            check_fences()
            try:
                client.alter_table(
                    database,
                    table_name,
                    altered,
                    environment=_ENVIRONMENT,
                    expected_parameter=expected,
                )
            except MetastoreServerError as error:
                if "has been modified" not in error.message or not tries_left:
                    raise
                continue
            return altered


def _compared(table: types.Table) -> tuple[str, str] | None:
    """Return the parameter that the metastore compares when it alters a table: it compares one only.

    A position shows no change by Hive, which takes no lock of this package: each such change between reading
    and writing would be lost. The time of the last change shows those. It shows no commit of a position, but
    these wait for the fences, unless this process is suspended right after it has checked their age.
    """
    parameters = table.parameters or {}
    key = CHANGED if CHANGED in parameters else next(iter(sorted(positions(table))), None)
    return None if key is None else (key, parameters[key])


def _settled(client: MetastoreClient, database: str, name: str) -> types.Table:
    """Read a table once any further change is certain to get a different timestamp."""
    table = client.get_table(database, name)
    for _ in range(_TRIES):
        timestamp = (table.parameters or {}).get(CHANGED, "")
        if not timestamp.isdecimal() or int(timestamp) < time.time() - _SKEW_S:
            return table
        time.sleep(_SECOND_S)
        table = client.get_table(database, name)
        # The metastore's clock showed this second before the wait, and has passed it now.
        if (table.parameters or {}).get(CHANGED) == timestamp:
            return table
    return table


def alter_partition_metadata(
    client: MetastoreClient, table: types.Table, changes: Mapping[str, Change]
) -> list[types.Partition]:
    """Change the cluster metadata of partitions; write none that stay the same or no longer exist.

    :param changes: the changes, by the name of the partition.
    :return: the written partitions.
    :raises ClusterMetadataError: the present metadata of a partition is damaged.
    :raises LockTimeoutError: another process holds the lock of the table's cluster metadata, or writes a
        partition.
    :raises MetastoreError: the metastore refuses.
    """
    keys = [key.name or "" for key in table.partitionKeys or ()]

    def changed(now: types.Partition) -> types.Partition | None:
        present = read_metadata(now.parameters, object_name(table, now))
        changed_metadata = changes[partition_name(keys, now.values or [])](present)
        if changed_metadata == present:
            return None
        now.parameters = write_metadata(now.parameters, changed_metadata)
        return now

    return alter_partitions(client, table, list(changes), changed)


def alter_partitions(
    client: MetastoreClient,
    table: types.Table,
    names: Sequence[str],
    change: Callable[[types.Partition], types.Partition | None],
    *,
    locked: bool = False,
    check: Callable[[], None] = unguarded,
) -> list[types.Partition]:
    """Change many partitions at once.

    The metastore cannot alter a partition on the condition that it is still as it was read. Therefore locks
    exclude other changes by this package, and Hive statements that write these partitions. If this process is
    suspended between the check of these locks and the arrival of its call, until the metastore has dropped
    them, such a change is lost; ``LockLostError`` reports that.

    Statements that insert into a transactional table are not excluded: they share their lock with readers,
    and a transaction may take long. They change a partition's statistics, and its write id. The metastore
    keeps statistics as accurate only if the partition still has a write id that the snapshot shows, which
    was taken before the partition was read. If a statement has put others in their place meanwhile, it marks
    those of this change as inaccurate (``MetaStoreDirectSql.alterPartitions``), and no query is answered by
    them.

    :param change: returns the changed partition, or ``None`` to leave the partition as it is.
    :param locked: the caller already excludes Hive statements.
    :param check: is called right before each alteration; raises if the caller's transaction may have ended.
    :return: the written partitions.
    :raises LockTimeoutError: another process holds the locks.
    :raises LockLostError: this process was suspended, and other processes may have altered partitions.
    """
    database, name = table.dbName or "", table.tableName or ""
    written: list[types.Partition] = []
    transactional = is_transactional(table)
    for batch in batches(names, PARTITIONS_PER_CALL):
        to_lock = () if locked else batch
        with altering(client, full_name(table), to_lock, beside_inserts=transactional) as check_alone:
            seen = _valid_write_ids(client, full_name(table)) if transactional else None
            changed = [change(partition) for partition in client.get_partitions_of(database, name, batch)]
            altered = [partition for partition in changed if partition is not None]
            if transactional:
                _withdraw_unversioned(altered)
            if altered:
                check()
                check_alone()
                client.alter_partitions(
                    database, name, altered, environment=_ENVIRONMENT, valid_write_ids=seen
                )
        written += altered
    return written


def _valid_write_ids(client: MetastoreClient, name: str) -> str:
    return take_snapshots(client, [name])[name.lower()].write_ids.text()


def _withdraw_unversioned(partitions: Sequence[types.Partition]) -> None:
    """Withdraw statistics without a write id, as of a table that became transactional later.

    The metastore compares no write id of such a partition: it would keep them beside rows of an insert.
    """
    for partition in partitions:
        if (partition.writeId or 0) < 1 and _ACCURATE in (partition.parameters or {}):
            del partition.parameters[_ACCURATE]


def partitions_by_name(
    client: MetastoreClient, table: types.Table, names: Sequence[str] | None = None
) -> dict[str, types.Partition]:
    """Return all partitions of a table, or some of them, by name."""
    keys = [key.name or "" for key in table.partitionKeys or ()]
    database, name = table.dbName or "", table.tableName or ""
    partitions = (
        client.iter_partitions(database, name)
        if names is None
        else client.get_partitions_of(database, name, names)
    )
    return {partition_name(keys, partition.values or []): partition for partition in partitions}


def relocate(described: types.Table | types.Partition, location: str) -> None:
    """Give a table or partition another location, also for Spark, which reads its own tables."""
    assert described.sd is not None
    former, described.sd.location = described.sd.location, location
    properties = (described.sd.serdeInfo and described.sd.serdeInfo.parameters) or {}
    # Spark reads its own tables at the path in this property, whatever their location is.
    for key in [key for key in properties if key.lower() == "path"]:
        if former and canonical(properties[key]) == canonical(former):
            properties[key] = location

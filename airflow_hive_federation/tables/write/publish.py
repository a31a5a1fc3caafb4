"""Staged files become a statement of a transaction: names, partitions, events, statistics.

Nothing here makes rows visible: only the commit of the transaction does. Killed between any two lines, it
leaves directories of a write id that the metastore aborts when heartbeats are missing, and perhaps empty
partitions, as Hive does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from airflow_hive_federation.acid.names import VERSION_FILE, bucket_file
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.filesystem import join, open_filesystem, parse_location, storage_errors
from airflow_hive_federation.storage.publishing import make_directory, rename, write_atomically
from airflow_hive_federation.tables.write.partitions import check_alike, new_partition
from airflow_hive_federation.tables.write.plan import (
    StagedFile,
    TableLayout,
    partition_names,
    statement_directory,
)
from airflow_hive_federation.transactions.locks import WriteKind, operation_type
from airflow_hive_federation.transactions.transaction import Transaction

_ACCURATE = "COLUMN_STATS_ACCURATE"
_NO_STATS_UPDATE = {"DO_NOT_UPDATE_STATS": "true"}
_THREADS = 8
_REMOVALS = 8
_REMOVAL_WAIT_S = 0.01


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One statement of a transaction on a table.

    :param kind: what it does.
    :param static_values: value texts of the one partition it writes to, where that is known beforehand;
        ``()`` for a table without partitions.
    """

    client: MetastoreClient
    transaction: Transaction
    layout: TableLayout
    write_id: int
    statement_id: int
    kind: WriteKind
    static_values: tuple[str, ...] | None
    storage_options: Mapping[str, Any] | None = field(repr=False)

    @property
    def deletes(self) -> bool:
        """Whether its files are delete deltas."""
        return self.kind is WriteKind.DELETE

    @property
    def overwrites(self) -> bool:
        """Whether it replaces what is there."""
        return self.kind is WriteKind.OVERWRITE


def publish(statement: Statement, files: Sequence[StagedFile], *, update: bool = False) -> None:
    """Give a statement's files their names and tell the metastore.

    :param update: the files belong to an UPDATE, not to a plain INSERT or DELETE.
    :raises ConfigurationError: if a partition is not stored as the table is.
    :raises StorageError: if a file cannot be renamed.
    :raises MetastoreError: if the metastore refuses.
    """
    values = sorted({file.values for file in files})
    if statement.static_values is not None and statement.overwrites:
        values = [statement.static_values]
    if not values:
        return
    partitions = _partitions(statement, values)
    directory = statement_directory(
        statement.write_id, statement.statement_id, deletes=statement.deletes, overwrite=statement.overwrites
    )
    places = {one: f"{partitions[one].sd.location.rstrip('/')}/{directory}" for one in values}
    statement.transaction.on_abort(lambda: remove_trees(list(places.values()), statement.storage_options))
    written = _move(statement, files, places)
    _create(statement, [partitions[one] for one in values])
    _tell(statement, values, written, update=update)
    _mark_stale(statement, [partitions[one] for one in values])


def remove_trees(uris: Sequence[str], storage_options: Mapping[str, Any] | None) -> None:
    """Remove directories, where they are.

    :raises StorageError: if one stays.
    """
    for uri in uris:
        filesystem, path = open_filesystem(uri, storage_options)
        with storage_errors(uri):
            _remove_tree(filesystem, path)


def _remove_tree(filesystem: Any, path: str) -> None:
    """Remove a directory that somebody else may be removing, too: each gets on after the other has."""
    for attempt in range(_REMOVALS):
        # An object store may answer from a listing that is older than the removal.
        filesystem.invalidate_cache(path)
        if not filesystem.exists(path):
            return
        try:
            filesystem.rm(path, recursive=True)
        except FileNotFoundError:
            if attempt + 1 == _REMOVALS:
                raise
            time.sleep(_REMOVAL_WAIT_S * 2**attempt)


def _partitions(statement: Statement, values: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], Any]:
    """Find the partitions, or describe those to be made; a table without partitions stands for itself."""
    layout, client = statement.layout, statement.client
    table: Any = client.get_table(layout.database, layout.table)
    if not layout.partition_keys:
        return {(): table}
    names = dict(zip(partition_names(layout, values), values, strict=True))
    found: Any = client.iter_partitions(layout.database, layout.table, names=list(names))
    existing = {tuple(one.values): one for one in found}
    if not statement.deletes:
        check_alike(layout, table, list(existing.values()))
    made = {
        one: new_partition(table, one, f"{layout.location}/{name}", statement.write_id)
        for name, one in names.items()
        if one not in existing
    }
    if made and (statement.deletes or statement.kind is WriteKind.UPDATE):
        raise ConfigurationError(f"{layout.name} has no partition {sorted(made)[0]}.")
    return existing | made


def _move(
    statement: Statement, files: Sequence[StagedFile], places: Mapping[tuple[str, ...], str]
) -> dict[tuple[str, ...], list[str]]:
    written: dict[tuple[str, ...], list[str]] = {one: [] for one in places}
    moves = []
    for file in files:
        target = f"{places[file.values]}/{_file_name(statement.layout, file.bucket)}"
        written[file.values].append(target)
        moves.append((file.path, target))
    for place in places.values():
        _make_directory(statement, place)
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda move: _rename(move[0], move[1], statement.storage_options), moves))
    return written


def _file_name(layout: TableLayout, bucket: int) -> str:
    return bucket_file(bucket, 0) if layout.is_full_acid else f"{bucket:06d}_0"


def _make_directory(statement: Statement, uri: str) -> None:
    make_directory(uri, statement.storage_options)
    # An object store keeps no directory without a file. Hive does not look at it in insert-only tables.
    if statement.layout.is_full_acid or statement.overwrites:
        write_atomically(join(uri, VERSION_FILE), [b"2"], statement.storage_options)


def _rename(source: str, target: str, storage_options: Mapping[str, Any] | None) -> None:
    here, there = parse_location(source), parse_location(target)
    if (here.scheme, here.authority) != (there.scheme, there.authority):
        raise ConfigurationError(
            f"{target} lies in another store than its table: it cannot be written.",
            remedy="Keep a table's partitions in one store.",
        )
    filesystem, source_path = open_filesystem(source, storage_options)
    with storage_errors(target):
        rename(filesystem, source_path, open_filesystem(target, storage_options)[1])


def _create(statement: Statement, partitions: Sequence[Any]) -> None:
    made = [one for one in partitions if one.writeId == statement.write_id]
    if statement.layout.partition_keys and made:
        statement.client.add_partitions(made, environment=_NO_STATS_UPDATE)


def _tell(
    statement: Statement,
    values: Sequence[tuple[str, ...]],
    written: Mapping[tuple[str, ...], Sequence[str]],
    *,
    update: bool,
) -> None:
    """Tell the metastore which partitions have components of the transaction, and replication which files."""
    client, layout, txn_id = statement.client, statement.layout, statement.transaction.id
    if layout.partition_keys and statement.static_values is None:
        kind = WriteKind.UPDATE if update else statement.kind
        request = types.AddDynamicPartitions(
            txnid=txn_id,
            writeid=statement.write_id,
            dbname=layout.database,
            tablename=layout.table,
            partitionnames=partition_names(layout, values),
            operationType=operation_type(kind),
        )
        client.call("add_dynamic_partitions", request)
    for one in values:
        client.call("add_write_notification_log", _notification(statement, one, written[one]))


def _notification(
    statement: Statement, values: tuple[str, ...], paths: Sequence[str]
) -> types.WriteNotificationLogRequest:
    data = types.InsertEventRequestData(
        replace=statement.overwrites,
        filesAdded=list(paths),
        # As Hive has it for stores that know no checksums.
        filesAddedChecksum=["" for _ in paths],
        subDirectoryList=[path.rsplit("/", 2)[1] for path in paths],
    )
    return types.WriteNotificationLogRequest(
        txnId=statement.transaction.id,
        writeId=statement.write_id,
        db=statement.layout.database,
        table=statement.layout.table,
        fileInfo=data,
        partitionVals=list(values) or None,
    )


def _mark_stale(statement: Statement, described: Sequence[Any]) -> None:
    stale = claiming_accuracy(described)
    if not stale:
        return
    layout = statement.layout
    seen = statement.transaction.snapshot(layout.database, layout.table).write_ids.text()
    withdraw_accuracy(statement.client, layout, stale, write_id=statement.write_id, seen=seen)


def claiming_accuracy(described: Sequence[Any]) -> list[Any]:
    """Return the tables or partitions whose statistics claim to be accurate."""
    return [one for one in described if _ACCURATE in (one.parameters or {})]


def withdraw_accuracy(
    client: MetastoreClient,
    layout: TableLayout,
    stale: Sequence[Any],
    *,
    write_id: int,
    seen: str,
    expected_parameter: tuple[str, str] | None = None,
) -> None:
    """Take from statistics the claim to be accurate: Hive answers ``count(*)`` from those that have it.

    :param stale: partitions, or the one table if it has none.
    :param write_id: of the transaction that makes them stale.
    :param seen: the table's valid write ids, in Hive's text form.
    :param expected_parameter: only if the table (not a partition) has this value of a parameter.
    """
    for one in stale:
        del one.parameters[_ACCURATE]
        one.writeId = write_id
    if layout.partition_keys:
        client.alter_partitions(
            layout.database,
            layout.table,
            stale,
            environment=_NO_STATS_UPDATE,
            valid_write_ids=seen,
            write_id=write_id,
        )
        return
    client.alter_table(
        layout.database,
        layout.table,
        stale[0],
        environment=_NO_STATS_UPDATE,
        valid_write_ids=seen,
        write_id=write_id,
        expected_parameter=expected_parameter,
    )

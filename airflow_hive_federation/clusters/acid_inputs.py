"""Describes the transactional tables that a routed statement reads: their directories and snapshots.

Spark's own reader returns all rows in the files of a transactional table, deleted and aborted ones included.
Therefore each statement reaches its Spark job with a description of every such table. Per partition, it
contains the directory of a copy and the write ids at the time of the copy, or the primary's directory and the
current write ids. A reader's transaction preserves the primary's files while the job runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from airflow_hive_federation.clusters.acid_snapshots import is_current
from airflow_hive_federation.clusters.altering import full_name, object_name
from airflow_hive_federation.clusters.metadata import Secondary, read_metadata
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.content_marks import content_mark
from airflow_hive_federation.model.json_values import JsonObject
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.storage.listing import list_many
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.tables.read.acid_description import (
    DescribedDirectory,
    DescribedRead,
    DescribedTable,
)
from airflow_hive_federation.transactions.snapshots import Snapshot, is_transactional
from airflow_hive_federation.transactions.transaction import Transaction

Described = types.Table | types.Partition


@contextmanager
def acid_inputs(
    client: MetastoreClient,
    names: Iterable[str],
    cluster: str,
    *,
    options: StorageOptions | None = None,
) -> Iterator[list[JsonObject]]:
    """Describe the transactional tables among the inputs of a statement, and preserve their files.

    One snapshot serves all tables. If a copy lacks rows of that snapshot, or some of its files, the statement
    reads the primary instead, from another site.

    :param names: ``database.table`` of all tables that the statement reads.
    :param cluster: the cluster that runs the statement.
    :param options: storage options of all clusters.
    :return: JSON values, as :mod:`airflow_hive_federation.spark.acid_tables` reads them.
    :raises LockTimeoutError: another lock excludes readers of a table for too long.
    :raises TransactionAbortedError: at the end, if files may have been removed before they were read.
    :raises ClusterMetadataError: cluster metadata is damaged.
    """
    tables = [described for described in _described(client, names) if is_transactional(described)]
    if not tables:
        yield []
        return
    by_name = {full_name(described).lower(): described for described in tables}
    with Transaction(client, read_only=True) as transaction:
        transaction.lock_to_read(by_name)
        snapshots = transaction.snapshots(list(by_name))
        # The tables may have been altered between the first read and the grant of the lock.
        yield [
            _described_input(client, table, snapshots[full_name(table).lower()], cluster, options).to_json()
            for table in _described(client, by_name)
        ]


def _described(client: MetastoreClient, names: Iterable[str]) -> list[types.Table]:
    by_database: defaultdict[str, set[str]] = defaultdict(set)
    for name in names:
        database, _, table = name.lower().partition(".")
        by_database[database].add(table)
    return [
        described
        for database, table_names in by_database.items()
        for described in client.get_tables(database, sorted(table_names))
    ]


def _described_input(
    client: MetastoreClient,
    table: types.Table,
    snapshot: Snapshot,
    cluster: str,
    options: StorageOptions | None,
) -> DescribedTable:
    objects: Sequence[Described] = [table]
    if table.partitionKeys:
        objects = list(client.iter_partitions(table.dbName or "", table.tableName or ""))
    copies = _whole(
        [
            (described, copy)
            for described in objects
            if (copy := _current(table, described, snapshot, cluster))
        ],
        options,
    )
    directories: defaultdict[tuple[str, str], list[DescribedDirectory]] = defaultdict(list)
    if not objects:
        directories[snapshot.write_ids.text(), snapshot.txns.text()] = []
    for described in objects:
        copy = copies.get(id(described))
        location = str(described.sd and described.sd.location)
        write_ids, txns, content = snapshot.write_ids, snapshot.txns, None
        if copy is not None and copy.snapshot is not None:
            # All directories of a copy were visible when it was made.
            location, write_ids, txns = copy.location, copy.snapshot, ValidTxns.everything()
            content = copy.source.content
        is_partition = isinstance(described, types.Partition)
        directory = DescribedDirectory(
            location=location,
            values=tuple(described.values or ()) if isinstance(described, types.Partition) else (),
            storage=described.sd if is_partition else None,
            content=content,
        )
        directories[write_ids.text(), txns.text()].append(directory)
    return DescribedTable(
        table=table,
        reads=tuple(
            DescribedRead(
                write_ids=ValidWriteIds.parse(write_ids_text),
                txns=ValidTxns.parse(txns_text),
                directories=tuple(of_snapshot),
            )
            for (write_ids_text, txns_text), of_snapshot in directories.items()
        ),
    )


def _current(table: types.Table, described: Described, snapshot: Snapshot, cluster: str) -> Secondary | None:
    partition = described if isinstance(described, types.Partition) else None
    copy = read_metadata(described.parameters, object_name(table, partition)).secondaries.get(cluster)
    return copy if copy is not None and is_current(described, copy, snapshot.write_ids) else None


def _whole(
    copies: Sequence[tuple[Described, Secondary]], options: StorageOptions | None
) -> dict[int, Secondary]:
    """Return the copies that have all their files, by the ``id()`` of their table or partition."""
    listings = list_many([copy.location for _, copy in copies], options=options, missing_ok=True)
    return {
        id(described): copy
        for described, copy in copies
        if content_mark(listings[copy.location]) == copy.source.content
    }

"""Writes Spark DataFrames to Hive ACID tables: append, overwrite, delete, update, merge.

>>> append(spark, client, "sales.orders", rows)  # doctest: +SKIP
>>> rows = read_table(spark, client, "sales.orders", row_ids=True)  # doctest: +SKIP
>>> delete(spark, client, "sales.orders", rows.where("day < '2020-01-01'"))  # doctest: +SKIP

Each function is one statement, in a transaction of its own or in the caller's. The statement's rows become
visible with the commit, all at once or never.

The caller identifies rows to change by their ``ROW__ID``. Every statement checks, once it holds its lock,
that these rows still exist. If another transaction has replaced a row meanwhile, the statement changes
nothing and fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from airflow_hive_federation.errors import ConfigurationError, SparkJobError, TransactionAbortedError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.tables.read.reader import ROW_ID_COLUMN, read_table
from airflow_hive_federation.tables.read.scan import union
from airflow_hive_federation.tables.spark_internals import time_zone
from airflow_hive_federation.tables.write.batches import cause_of, collect_from_workers
from airflow_hive_federation.tables.write.constraints import writable_layout
from airflow_hive_federation.tables.write.files import write_deletes, write_inserts
from airflow_hive_federation.tables.write.fragments import (
    FRAGMENT_SCHEMA,
    assemble_fragments,
    encode_fragments,
)
from airflow_hive_federation.tables.write.plan import (
    StagedFile,
    TableLayout,
    check_one_file_per_bucket,
    is_written_in_fragments,
    match_columns,
    partition_names,
)
from airflow_hive_federation.tables.write.publish import Publication, Statement, publish
from airflow_hive_federation.tables.write.rows import (
    arranged,
    as_texts,
    existing_keys,
    flagged,
    prepared,
    row_keys,
)
from airflow_hive_federation.tables.write.staging import staging_directory, sweep
from airflow_hive_federation.tables.write.tasks import RESULT_SCHEMA, Writing
from airflow_hive_federation.transactions.locks import TableWrite, WriteKind
from airflow_hive_federation.transactions.snapshots import take_snapshots
from airflow_hive_federation.transactions.transaction import Transaction, joined

_REOPENINGS = 10
"""Number of times a transaction is restarted because others committed while it waited for its lock."""


@dataclass(frozen=True, kw_only=True)
class WriteResult:
    """The result of a statement.

    :param write_id: the statement's write id on the table.
    :param inserted: number of rows added.
    :param updated: number of rows replaced.
    :param deleted: number of rows removed.
    """

    table: str
    txn_id: int
    write_id: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


def append(
    spark: SparkSession,
    client: MetastoreClient,
    name: str,
    rows: DataFrame,
    *,
    partition: Mapping[str, object] | None = None,
    transaction: Transaction | None = None,
    storage_options: StorageOptions | None = None,
) -> WriteResult:
    """Add rows to a transactional table (INSERT INTO).

    :param client: client of the metastore that owns the table.
    :param name: ``database.table``.
    :param rows: the table's columns, in any order, and the partition keys that have no static value.
    :param partition: static values of partition keys, of the keys' types or texts of such values; ``None``
        as a value is Hive's default partition.
    :param transaction: the caller's transaction; ``None`` opens and commits one.
    :param storage_options: options of the table's store.
    :raises ConfigurationError: if the table is not transactional, is a view, or has an unsupported format or
        type, or a CHECK constraint; if the columns do not fit, or if one that is NOT NULL has a null: the
        message names them.
    :raises LockTimeoutError: if the lock is not granted in time.
    :raises TransactionAbortedError: if the metastore has aborted the transaction meanwhile.
    :raises SparkJobError: if Spark fails; none of the rows is visible then.
    """
    work = _Work(spark, client, name, storage_options)
    return _insert(work, rows, partition, transaction, kind=WriteKind.INSERT)


def overwrite(
    spark: SparkSession,
    client: MetastoreClient,
    name: str,
    rows: DataFrame,
    *,
    partition: Mapping[str, object] | None = None,
    transaction: Transaction | None = None,
    storage_options: StorageOptions | None = None,
) -> WriteResult:
    """Replace the rows of a table, of a partition, or of all partitions of the rows (INSERT OVERWRITE).

    The parameters and exceptions are those of :func:`append`. Without rows, a table without partitions, or a
    partition with static values for all keys, becomes empty.
    """
    work = _Work(spark, client, name, storage_options)
    return _insert(work, rows, partition, transaction, kind=WriteKind.OVERWRITE)


def delete(
    spark: SparkSession,
    client: MetastoreClient,
    name: str,
    rows: DataFrame,
    *,
    transaction: Transaction | None = None,
    storage_options: StorageOptions | None = None,
) -> WriteResult:
    """Delete rows of a full ACID table.

    :param rows: ``ROW__ID`` and the partition keys of the rows, as returned by :func:`read_table`.
    :raises ConfigurationError: if the table is not a full ACID table, or a row occurs twice, or comes with
        values of another partition than its own.
    :raises TransactionAbortedError: if a row does not exist (any more), or on a write conflict.

    The other parameters and exceptions are those of :func:`append`.
    """
    return merge(spark, client, name, deletes=rows, transaction=transaction, storage_options=storage_options)


def update(
    spark: SparkSession,
    client: MetastoreClient,
    name: str,
    rows: DataFrame,
    *,
    transaction: Transaction | None = None,
    storage_options: StorageOptions | None = None,
) -> WriteResult:
    """Replace rows of a full ACID table.

    :param rows: ``ROW__ID`` of the rows to replace, and all columns and partition keys with their new values.
        A row must stay in its partition: to move one, delete it and insert it by :func:`merge`.

    The exceptions are those of :func:`delete`.
    """
    return merge(spark, client, name, updates=rows, transaction=transaction, storage_options=storage_options)


def merge(
    spark: SparkSession,
    client: MetastoreClient,
    name: str,
    *,
    updates: DataFrame | None = None,
    deletes: DataFrame | None = None,
    inserts: DataFrame | None = None,
    transaction: Transaction | None = None,
    storage_options: StorageOptions | None = None,
) -> WriteResult:
    """Delete, update and insert rows in one statement (MERGE).

    :param updates: rows as for :func:`update`.
    :param deletes: rows as for :func:`delete`.
    :param inserts: rows as for :func:`append`.

    The exceptions are those of :func:`delete`; a row both updated and deleted occurs twice.
    """
    work = _Work(spark, client, name, storage_options)
    layout = work.layout
    if not layout.is_full_acid and (updates is not None or deletes is not None):
        raise ConfigurationError(
            f"{layout.name} is insert-only: its rows cannot be changed.",
            remedy="Overwrite it, or make it a full ACID table.",
        )
    kinds = [
        kind
        for kind, rows in (
            (WriteKind.UPDATE, updates),
            (WriteKind.DELETE, deletes),
            (WriteKind.INSERT, inserts),
        )
        if rows is not None
    ]
    if not kinds:
        raise ConfigurationError(f"Nothing to merge into {layout.name}.", remedy="Give rows to merge.")
    with _changing(work, transaction, _writes(layout, kinds)) as own:
        kept = None if updates is None else updates.persist()
        try:
            return _merge(work, own, updates=kept, deletes=deletes, inserts=inserts)
        finally:
            if kept is not None:
                kept.unpersist()


class _Work:
    """The session, client and table layout that all steps of a statement share."""

    def __init__(
        self,
        spark: SparkSession,
        client: MetastoreClient,
        name: str,
        storage_options: StorageOptions | None,
    ) -> None:
        database, _, table = name.partition(".")
        self.spark, self.client, self.storage_options = spark, client, storage_options
        self.layout: TableLayout = writable_layout(client, client.get_table(database, table))

    @property
    def zone(self) -> str:
        """Return the time zone whose wall clock our reader and Spark's ORC reader use for timestamps."""
        return time_zone(self.spark)


def _insert(
    work: _Work,
    rows: DataFrame,
    partition: Mapping[str, object] | None,
    transaction: Transaction | None,
    *,
    kind: WriteKind,
) -> WriteResult:
    layout = work.layout
    match = match_columns(layout, rows.columns, partition)
    values = None if match.dynamic else tuple(match.static[key] for key in layout.key_names)
    locked = partition_names(layout, [values])[0] if values else None
    write = TableWrite(
        database=layout.database,
        table=layout.table,
        kind=kind,
        partition=locked,
        dynamic=values is None,
    )
    with _changing(work, transaction, [write]) as own:
        statement = _statement(work, own, kind, values)
        with _staging(work, own) as staging:
            files = _written(work, prepared(layout, rows, match), statement, staging, "insert")
            own.check()
            publish([Publication(statement=statement, files=files)])
        return WriteResult(
            table=layout.name,
            txn_id=own.id,
            write_id=statement.write_id,
            inserted=sum(file.row_count for file in files),
        )


def _merge(
    work: _Work,
    transaction: Transaction,
    *,
    updates: DataFrame | None,
    deletes: DataFrame | None,
    inserts: DataFrame | None,
) -> WriteResult:
    layout = work.layout
    done: list[Publication] = []
    with _staging(work, transaction) as staging:
        changed = [rows for rows in (updates, deletes) if rows is not None]
        if changed:
            statement = _statement(work, transaction, WriteKind.DELETE)
            keys = union([row_keys(layout, rows) for rows in changed])
            existing = existing_keys(layout, _rows_there(work, transaction))
            files = _written(work, flagged(layout, keys, existing), statement, staging, "delete")
            done.append(Publication(statement=statement, files=files, update=updates is not None))
        counts = {"updated": 0, "inserted": 0}
        for purpose, rows in (("updated", updates), ("inserted", inserts)):
            if rows is None:
                continue
            kind = WriteKind.UPDATE if purpose == "updated" else WriteKind.INSERT
            statement = _statement(work, transaction, kind)
            given = [column for column in rows.columns if column != ROW_ID_COLUMN]
            match = match_columns(layout, given, None)
            selected = prepared(layout, rows, match, in_place=purpose == "updated")
            files = _written(work, selected, statement, staging, purpose, placed=purpose == "updated")
            counts[purpose] = sum(file.row_count for file in files)
            done.append(Publication(statement=statement, files=files, update=purpose == "updated"))
        removed = sum(file.row_count for one in done if one.statement.deletes for file in one.files)
        _check_counts(layout, removed, counts["updated"], exact=deletes is None)
        transaction.check()
        publish(done)
    return WriteResult(
        table=layout.name,
        txn_id=transaction.id,
        write_id=done[0].statement.write_id,
        inserted=counts["inserted"],
        updated=counts["updated"],
        deleted=removed - counts["updated"],
    )


def _check_counts(layout: TableLayout, removed: int, updated: int, *, exact: bool) -> None:
    if updated > removed or (exact and updated != removed):
        raise ConfigurationError(
            f"{layout.name}: {removed} rows are to be replaced, but there are {updated} new rows for them.",
            remedy="Write the rows to a table first, because Spark computed them differently each time.",
        )


# Transactions ----------------------------------------------------------------------------------------------


def _writes(layout: TableLayout, kinds: Sequence[WriteKind]) -> list[TableWrite]:
    return [
        TableWrite(
            database=layout.database, table=layout.table, kind=kind, dynamic=bool(layout.partition_keys)
        )
        for kind in kinds
    ]


@contextmanager
def _changing(
    work: _Work, transaction: Transaction | None, writes: Sequence[TableWrite]
) -> Iterator[Transaction]:
    if transaction is None:
        with _fresh(work.client, writes) as own:
            own.claim(work.layout.database, work.layout.table, [write.kind for write in writes])
            yield own
        return
    with joined(work.client, transaction) as callers:
        callers.claim(work.layout.database, work.layout.table, [write.kind for write in writes])
        callers.lock(writes)
        yield callers


@contextmanager
def _fresh(client: MetastoreClient, writes: Sequence[TableWrite]) -> Iterator[Transaction]:
    """Open a transaction and take its locks.

    A commit of another transaction between its beginning and its lock counts as a conflict. The transaction
    is then restarted, as in Hive (``Driver``: "snapshot was outdated").
    """
    name = f"{writes[0].database}.{writes[0].table}"
    for attempt in range(_REOPENINGS):
        before = take_snapshots(client, [name])[name.lower()].write_ids if _may_conflict(writes) else None
        with Transaction(client) as own:
            own.lock(writes)
            if before is not None and attempt + 1 < _REOPENINGS:
                now = own.snapshot(writes[0].database, writes[0].table).write_ids
                if _has_new_commits(before, now):
                    own.abort()
                    continue
            yield own
        return


def _has_new_commits(before: ValidWriteIds, now: ValidWriteIds) -> bool:
    """Return whether a write id is visible in ``now`` that was not visible in ``before``."""
    new = range(before.high_watermark + 1, now.high_watermark + 1)
    return any(now.is_valid(write_id) for write_id in (*before.open_ids, *new))


def _may_conflict(writes: Sequence[TableWrite]) -> bool:
    return any(write.kind is not WriteKind.INSERT for write in writes)


def _statement(
    work: _Work, transaction: Transaction, kind: WriteKind, values: tuple[str, ...] | None = None
) -> Statement:
    layout = work.layout
    if values is None and not layout.partition_keys:
        values = ()
    return Statement(
        client=work.client,
        transaction=transaction,
        layout=layout,
        write_id=transaction.write_id(layout.database, layout.table),
        statement_id=transaction.next_statement_id(layout.database, layout.table),
        kind=kind,
        static_values=values,
        storage_options=work.storage_options,
    )


@contextmanager
def _staging(work: _Work, transaction: Transaction) -> Iterator[str]:
    """Remove the hidden directories of killed drivers, and yield a new one for the statement's tasks."""
    layout = work.layout
    sweep(
        layout.location,
        lambda: transaction.snapshot(layout.database, layout.table).txns,
        work.storage_options,
    )
    with staging_directory(layout.location, transaction.id, work.storage_options) as staging:
        yield staging


def _rows_there(work: _Work, transaction: Transaction) -> DataFrame:
    layout = work.layout
    return read_table(
        work.spark,
        work.client,
        layout.name,
        columns=(),
        row_ids=True,
        snapshot=transaction.snapshot(layout.database, layout.table),
        storage_options=work.storage_options,
    )


def _written(
    work: _Work,
    rows: DataFrame,
    statement: Statement,
    staging: str,
    purpose: str,
    *,
    placed: bool = False,
) -> list[StagedFile]:
    layout = work.layout
    writing = Writing(
        staging=staging,
        storage_options=work.storage_options,
        purpose=purpose,
        file_format=layout.file_format,
        columns=layout.columns,
        not_null=layout.not_null,
        partition_width=len(layout.partition_keys),
        bucketed=bool(layout.bucket_count) or placed or statement.deletes,
        zone=work.zone,
        compression=layout.compression,
        filters=layout.filters,
        write_id=statement.write_id,
        statement_id=statement.statement_id,
        text=layout.text,
        buckets=layout.buckets,
        destination=statement.destination,
    )
    try:
        results = _results(rows, writing, statement, placed=placed)
    except (PySparkException, Py4JJavaError) as error:
        raise SparkJobError(
            f"Writing to {layout.name} failed: {cause_of(error)}",
            remedy="Nothing of it is visible. See Spark's log for the cause.",
        ) from error
    _check_refusals(layout, results)
    files = [
        StagedFile(
            path=result.path,
            values=tuple(result["values"]),
            bucket=result.bucket,
            row_count=result.row_count,
            size_bytes=result.size_bytes,
            deletes=statement.deletes,
        )
        for result in results
    ]
    check_one_file_per_bucket(layout.name, files)
    return files


def _results(rows: DataFrame, writing: Writing, statement: Statement, *, placed: bool) -> list[Row]:
    """Write rows in Spark tasks, and return the tasks' results; delete rows are arranged already."""
    layout = statement.layout
    if statement.deletes:
        return collect_from_workers(rows, write_deletes(writing), RESULT_SCHEMA)
    if not placed and is_written_in_fragments(layout, one_partition=statement.static_values is not None):
        fragments = collect_from_workers(rows, encode_fragments(writing), FRAGMENT_SCHEMA)
        _check_refusals(layout, fragments)
        return assemble_fragments(rows.sparkSession, writing, fragments)
    rows = arranged(layout, rows, writing.zone, placed=placed)
    if layout.text is not None:
        rows = as_texts(layout, rows, writing.zone)
    return collect_from_workers(rows, write_inserts(writing), RESULT_SCHEMA)


def _check_refusals(layout: TableLayout, results: Sequence[Row]) -> None:
    for result in results:
        if result.problem:
            kind = TransactionAbortedError if "(any more)" in result.problem else ConfigurationError
            raise kind(
                f"{layout.name}: {result.problem}.",
                remedy="Nothing was changed: correct the rows, or read them again.",
            )

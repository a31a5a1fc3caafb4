"""Write Hive ACID tables from Spark DataFrames: append, overwrite, delete, update, merge.

>>> append(spark, client, "sales.orders", rows)  # doctest: +SKIP
>>> rows = read_table(spark, client, "sales.orders", row_ids=True)  # doctest: +SKIP
>>> delete(spark, client, "sales.orders", rows.where("day < '2020-01-01'"))  # doctest: +SKIP

Each is one statement, in a transaction of its own or joined to the caller's. Its rows become visible with the
commit, all at once or never.

Changed rows are named by their ``ROW__ID``. Every statement makes sure that these rows are still there when
it holds its lock: a version of a row that someone else has replaced meanwhile is not changed, and the
statement fails.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from airflow_hive_federation.acid.bucket_columns import bucket_column
from airflow_hive_federation.acid.locks import TableWrite, WriteKind
from airflow_hive_federation.acid.reader import ROW_ID_COLUMN, read_table
from airflow_hive_federation.acid.spark_types import spark_type
from airflow_hive_federation.acid.transactions import Transaction, joined
from airflow_hive_federation.acid.write_files import RESULT_SCHEMA, Writing, write_deletes, write_inserts
from airflow_hive_federation.acid.write_plan import (
    MAX_BUCKET,
    ColumnMatch,
    StagedFile,
    TableLayout,
    check_one_file_per_bucket,
    match_columns,
    partition_names,
    table_layout,
)
from airflow_hive_federation.acid.write_publish import Statement, make_directory, publish, remove_trees
from airflow_hive_federation.errors import ConfigurationError, SparkJobError, TransactionAbortedError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.model.partitions import DEFAULT_PARTITION
from airflow_hive_federation.model.types import Column, HiveType
from airflow_hive_federation.storage.filesystem import local_path, storage_errors

_BUCKET, _FOUND = "__bucket", "__found"
_IDS = ("__write_id", "__bucket_property", "__row_id")
_REOPENINGS = 10
"""How often a transaction is begun anew because others committed while it waited for its lock."""


@dataclass(frozen=True, kw_only=True)
class WriteResult:
    """What a statement did.

    :param write_id: its write id on the table.
    :param inserted: rows added.
    :param updated: rows replaced.
    :param deleted: rows removed.
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
    partition: Mapping[str, Any] | None = None,
    transaction: Transaction | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> WriteResult:
    """Add rows to a transactional table (INSERT INTO).

    :param client: client of the metastore that owns the table.
    :param name: ``database.table``.
    :param rows: the table's columns, in any order, and the partition keys that have no static value.
    :param partition: static values of partition keys; ``None`` as a value is Hive's default partition.
    :param transaction: the caller's; ``None`` makes and commits one.
    :param storage_options: options of the store the table lies in.
    :raises ConfigurationError: if the table is not transactional, is a view, or has a format or type that is
        not written here, or the columns do not fit; they are named.
    :raises LockTimeoutError: if the lock is not granted in time.
    :raises TransactionAbortedError: if the transaction was aborted under us.
    :raises SparkJobError: if Spark fails; nothing is visible then.
    """
    return _insert(
        _Work(spark, client, name, storage_options), rows, partition, transaction, kind=WriteKind.INSERT
    )


def overwrite(
    spark: SparkSession,
    client: MetastoreClient,
    name: str,
    rows: DataFrame,
    *,
    partition: Mapping[str, Any] | None = None,
    transaction: Transaction | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> WriteResult:
    """Replace the rows of a table, of a partition, or of the partitions the rows have (INSERT OVERWRITE).

    Takes and raises what :func:`append` does. A table without partitions, or a partition given in full, is
    emptied if there are no rows.
    """
    return _insert(
        _Work(spark, client, name, storage_options), rows, partition, transaction, kind=WriteKind.OVERWRITE
    )


def delete(
    spark: SparkSession,
    client: MetastoreClient,
    name: str,
    rows: DataFrame,
    *,
    transaction: Transaction | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> WriteResult:
    """Delete rows of a full ACID table.

    :param rows: ``ROW__ID`` and the partition keys of the rows, as :func:`read_table` gives them.
    :raises ConfigurationError: if it is no full ACID table, or a row is named twice.
    :raises TransactionAbortedError: if a row is not there (any more), or on a write conflict.

    Otherwise as :func:`append`.
    """
    return merge(spark, client, name, deletes=rows, transaction=transaction, storage_options=storage_options)


def update(
    spark: SparkSession,
    client: MetastoreClient,
    name: str,
    rows: DataFrame,
    *,
    transaction: Transaction | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> WriteResult:
    """Replace rows of a full ACID table.

    :param rows: ``ROW__ID`` of the rows to replace, and all columns and partition keys with their new values.
        The partition must stay the same.

    Raises what :func:`delete` raises.
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
    storage_options: Mapping[str, Any] | None = None,
) -> WriteResult:
    """Delete, update and insert in one statement (MERGE).

    :param updates: as for :func:`update`.
    :param deletes: as for :func:`delete`.
    :param inserts: as for :func:`append`.

    Raises what :func:`delete` raises; a row both updated and deleted counts as named twice.
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
        raise ConfigurationError(f"Nothing to merge into {layout.name}.")
    with _changing(work, transaction, _writes(layout, kinds)) as own:
        kept = None if updates is None else updates.persist()
        try:
            return _merge(work, own, updates=kept, deletes=deletes, inserts=inserts)
        finally:
            if kept is not None:
                kept.unpersist()


class _Work:
    """What every step of a statement needs."""

    def __init__(
        self,
        spark: SparkSession,
        client: MetastoreClient,
        name: str,
        storage_options: Mapping[str, Any] | None,
    ) -> None:
        database, _, table = name.partition(".")
        self.spark, self.client, self.storage_options = spark, client, storage_options
        self.layout: TableLayout = table_layout(client.get_table(database, table))

    @property
    def zone(self) -> str:
        """The zone by whose wall clock our reader, and Spark's ORC reader, understand timestamps."""
        return str(self.spark._jvm.java.util.TimeZone.getDefault().getID())  # type: ignore[union-attr] # noqa: SLF001


def _insert(
    work: _Work,
    rows: DataFrame,
    partition: Mapping[str, Any] | None,
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
            files = _written(
                work, _arranged(work, _prepared(work, rows, match)), statement, staging, "insert"
            )
            own.check()
            publish(statement, files)
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
    done: list[tuple[Statement, list[StagedFile], bool]] = []
    with _staging(work, transaction) as staging:
        changed = [rows for rows in (updates, deletes) if rows is not None]
        if changed:
            statement = _statement(work, transaction, WriteKind.DELETE)
            keys = _union([_row_keys(work, rows) for rows in changed])
            files = _written(work, _checked(work, transaction, keys), statement, staging, "delete")
            done.append((statement, files, updates is not None))
        counts = {"updated": 0, "inserted": 0}
        for purpose, rows in (("updated", updates), ("inserted", inserts)):
            if rows is None:
                continue
            kind = WriteKind.UPDATE if purpose == "updated" else WriteKind.INSERT
            statement = _statement(work, transaction, kind)
            match = match_columns(layout, [one for one in rows.columns if one != ROW_ID_COLUMN], None)
            prepared = _prepared(work, rows, match, keep_bucket=purpose == "updated")
            files = _written(
                work,
                _arranged(work, prepared, placed=purpose == "updated"),
                statement,
                staging,
                purpose,
                placed=purpose == "updated",
            )
            counts[purpose] = sum(file.row_count for file in files)
            done.append((statement, files, purpose == "updated"))
        removed = sum(file.row_count for one, files, _ in done if one.deletes for file in files)
        _check_counts(layout, removed, counts["updated"], exact=deletes is None)
        transaction.check()
        for statement, files, is_update in done:
            publish(statement, files, update=is_update)
    return WriteResult(
        table=layout.name,
        txn_id=transaction.id,
        write_id=done[0][0].write_id,
        inserted=counts["inserted"],
        updated=counts["updated"],
        deleted=removed - counts["updated"],
    )


def _check_counts(layout: TableLayout, removed: int, updated: int, *, exact: bool) -> None:
    if updated > removed or (exact and updated != removed):
        raise ConfigurationError(
            f"{layout.name}: {removed} rows were to be replaced, but {updated} came in their place.",
            remedy="Spark computed the rows differently each time: write them down first.",
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
    """Open and lock a transaction.

    Who waited for a lock may find that others have committed since its transaction was opened, which counts
    as a conflict: it begins anew, as Hive does (``Driver``: "snapshot was outdated").
    """
    for attempt in range(_REOPENINGS):
        with Transaction(client) as own:
            waited = own.lock(writes)
            if waited and attempt + 1 < _REOPENINGS and _may_conflict(writes):
                own.abort()
                continue
            yield own
        return


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
    """Yield a hidden directory inside the table's, removed in the end.

    Attempts of tasks may outlive a job that failed. They make no directory (``_OpenFile``), and the one there
    is gets another name before it is removed, so that nothing can be added to it while it goes.
    """
    uri = f"{work.layout.location}/.hive-staging_spark_{transaction.id}_{uuid.uuid4().hex[:12]}"
    make_directory(uri, work.storage_options)
    try:
        yield uri
    finally:
        ending = f"{uri}_ending"
        path, new_path = local_path(uri), local_path(ending)
        if path is not None and new_path is not None:
            with storage_errors(uri):
                Path(path).rename(new_path)
        remove_trees([ending, uri], work.storage_options)


# Rows ------------------------------------------------------------------------------------------------------


def _prepared(work: _Work, rows: DataFrame, match: ColumnMatch, *, keep_bucket: bool = False) -> DataFrame:
    """Select the table's columns by position, typed, then partition value texts, then the bucket."""
    layout = work.layout
    columns = [
        _quoted(source).cast(spark_type(column.type)).alias(f"c{index}")
        for index, (source, column) in enumerate(zip(match.sources, layout.columns, strict=True))
    ]
    texts = []
    for index, key in enumerate(layout.partition_keys):
        if key.name in match.static:
            text = fn.lit(match.static[key.name])
        else:
            text = _text(_quoted(match.dynamic[key.name]), key)
        texts.append(text.alias(f"p{index}"))
    kept = [_bucket_of_row_id().alias(_BUCKET)] if keep_bucket and not layout.bucket_count else []
    prepared = rows.select(*columns, *texts, *kept)
    if not layout.bucket_count:
        return prepared
    positions = {column.name: index for index, column in enumerate(layout.columns)}
    hashed = [(f"c{positions[one]}", layout.columns[positions[one]].type) for one in layout.bucket_columns]
    number = bucket_column(
        hashed, buckets=layout.bucket_count, version=layout.bucketing_version, zone=work.zone
    )
    return prepared.withColumn(_BUCKET, number)


def _arranged(work: _Work, rows: DataFrame, *, placed: bool = False) -> DataFrame:
    """Bring rows of one partition and bucket together, in the order of SORTED BY."""
    layout = work.layout
    keys = [f"p{index}" for index in range(len(layout.partition_keys))]
    positions = {column.name: index for index, column in enumerate(layout.columns)}
    order = [
        fn.col(f"c{positions[one]}").asc() if ascending else fn.col(f"c{positions[one]}").desc()
        for one, ascending in layout.sort_columns
    ]
    if layout.bucket_count or placed:
        keys.append(_BUCKET)
        if len(keys) == 1 and layout.bucket_count:
            rows = rows.repartitionById(layout.bucket_count, fn.col(_BUCKET))
            return rows.sortWithinPartitions(*order) if order else rows
        return rows.repartition(*keys).sortWithinPartitions(*keys, *order)
    if keys:
        # Large partitions are split and small ones put together: each task has files of its own.
        return rows.hint("rebalance", *keys).sortWithinPartitions(*keys, *order)
    return rows.sortWithinPartitions(*order) if order else rows


def _row_keys(work: _Work, rows: DataFrame) -> DataFrame:
    layout = work.layout
    by_name = {column.lower(): column for column in rows.columns}
    missing = [one for one in (ROW_ID_COLUMN.lower(), *layout.key_names) if one not in by_name]
    if missing:
        raise ConfigurationError(
            f"The rows of {layout.name} to change come without {', '.join(missing)}.",
            remedy="Read them by read_table(…, row_ids=True), and keep ROW__ID and the partition keys.",
            missing=missing,
        )
    texts = [_text(_quoted(by_name[key.name]), key) for key in layout.partition_keys]
    parts = zip(("writeid", "bucketid", "rowid"), _IDS, strict=True)
    return rows.select(
        *(fn.col(ROW_ID_COLUMN).getField(part).alias(name) for part, name in parts),
        *(text.alias(f"p{index}") for index, text in enumerate(texts)),
    )


def _checked(work: _Work, transaction: Transaction, keys: DataFrame) -> DataFrame:
    """Tell for every row to change whether it is there; ordered as delete deltas are."""
    layout = work.layout
    snapshot = transaction.snapshot(layout.database, layout.table)
    there = _row_keys(
        work,
        read_table(
            work.spark,
            work.client,
            layout.name,
            columns=layout.key_names,
            row_ids=True,
            snapshot=snapshot,
            storage_options=work.storage_options,
        ),
    ).withColumn(_FOUND, fn.lit(True))
    texts = [f"p{index}" for index in range(len(layout.partition_keys))]
    found = keys.join(there, [*_IDS, *texts], "left")
    number = fn.expr(f"coalesce(shiftright({_IDS[1]}, 16) & {MAX_BUCKET}, 0)").alias(_BUCKET)
    flagged = fn.coalesce(fn.col(_FOUND), fn.lit(False)).alias(_FOUND)
    rows = found.select(*_IDS, flagged, *texts, number)
    return rows.repartition(*texts, _BUCKET).sortWithinPartitions(*texts, _BUCKET, *_IDS)


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
        partition_width=len(layout.partition_keys),
        bucketed=bool(layout.bucket_count) or placed or statement.deletes,
        zone=work.zone,
        compression=layout.compression,
        write_id=statement.write_id,
        statement_id=statement.statement_id,
    )
    write: Callable[[Any], Any] = (write_deletes if statement.deletes else write_inserts)(writing)
    try:
        results = rows.mapInArrow(write, RESULT_SCHEMA).collect()
    except (PySparkException, Py4JJavaError) as error:
        raise SparkJobError(
            f"Writing to {layout.name} failed: {_first_line(error)}",
            remedy="Nothing of it is visible. See Spark's log for the cause.",
        ) from error
    for one in results:
        if one.problem:
            kind = TransactionAbortedError if "(any more)" in one.problem else ConfigurationError
            raise kind(f"{layout.name}: {one.problem}.", remedy="Nothing was changed: read again.")
    files = [
        StagedFile(
            path=one.path,
            values=tuple(one["values"]),
            bucket=one.bucket,
            row_count=one.row_count,
            size_bytes=one.size_bytes,
            deletes=statement.deletes,
        )
        for one in results
    ]
    check_one_file_per_bucket(layout.name, files)
    return files


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:500] if lines else type(error).__name__


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    result = frames[0]
    for frame in frames[1:]:
        result = result.unionAll(frame)
    return result


def _bucket_of_row_id() -> SparkColumn:
    return fn.expr(f"shiftright({ROW_ID_COLUMN}.bucketid, 16) & {MAX_BUCKET}")


def _quoted(name: str) -> SparkColumn:
    return fn.col("`" + name.replace("`", "``") + "`")


def _text(value: SparkColumn, key: Column) -> SparkColumn:
    """Write a partition value as Hive does in names of partitions."""
    text = value.cast(spark_type(key.type)).cast("string")
    if key.type.name in _TEXTS:
        text = _TEXTS[key.type.name](text, key.type)
    return fn.when(text.isNull() | (text == ""), fn.lit(DEFAULT_PARTITION)).otherwise(text)


_TextOf = Callable[[SparkColumn, HiveType], SparkColumn]
_TEXTS: dict[str, _TextOf] = {
    # HiveDecimal has no trailing zeros in its fraction.
    "decimal": lambda text, one: fn.regexp_replace(text, r"\.?0+$", "") if one.arguments[1] else text,
    "char": lambda text, one: fn.rtrim(fn.substring(text, 1, one.arguments[0])),
    "varchar": lambda text, one: fn.substring(text, 1, one.arguments[0]),
}

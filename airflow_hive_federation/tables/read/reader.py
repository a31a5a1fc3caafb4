"""Reads Hive tables as Spark DataFrames: full ACID, insert-only and plain tables.

>>> rows = read_table(spark, client, "sales.orders", partitions=["day=2026-01-01"])  # doctest: +SKIP

``spark.sql`` on a full ACID table silently returns no rows; :func:`read_table` returns the rows that Hive
would.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

from airflow_hive_federation.acid.names import DirectoryKind, FileKind, parse_file
from airflow_hive_federation.acid.side_files import read_flushed_length
from airflow_hive_federation.acid.snapshot import AcidDirectory, AcidState
from airflow_hive_federation.errors import AcidFormatError, ConfigurationError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.tables.read import scan
from airflow_hive_federation.tables.read.arrow_rows import RowFile, bucket_property
from airflow_hive_federation.tables.read.deletes import Deletes, read_deletes
from airflow_hive_federation.tables.read.footers import each
from airflow_hive_federation.tables.read.formats.plain import plain_table
from airflow_hive_federation.tables.read.locations import directories_to_read
from airflow_hive_federation.tables.read.partition_scans import (
    PartitionScan,
    PartitionState,
    no_rows,
    shown,
    with_partition_values,
)
from airflow_hive_federation.tables.read.pruning import Predicate
from airflow_hive_federation.tables.spark_types import spark_schema
from airflow_hive_federation.transactions.snapshots import Snapshot, is_transactional, take_snapshots

ROW_ID_COLUMN = "ROW__ID"
PARTITION_FIELD = "partition"
"""Field of ``ROW__ID`` that Hive's lacks; only tables with partitions have it."""
_ORC = "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat"


def read_table(
    spark: SparkSession,
    client: MetastoreClient,
    name: str,
    *,
    partitions: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    row_ids: bool = False,
    snapshot: Snapshot | None = None,
    storage_options: StorageOptions | None = None,
) -> DataFrame:
    """Read a Hive table with the rows that Hive would return.

    :param client: client of the metastore that *owns* the table: write ids of another metastore do not apply.
    :param name: ``database.table``.
    :param partitions: partition names (``day=2026-01-01/hour=7``); ``None`` reads all.
    :param columns: columns and partition keys to return, in this order; ``None`` returns all. A full ACID
        table is read faster if they are its first columns, or all of them by name.
    :param where: a condition in Spark's SQL on the table's columns and partition keys. Partitions and bucket
        files that cannot hold such rows are not opened, which a condition on the DataFrame cannot achieve.
    :param row_ids: add ``ROW__ID``, a struct of writeid, bucketid and rowid (full ACID tables only). In a
        table with partitions, it also has the texts of the partition's values: ``partition``, an array.
    :param snapshot: a snapshot from :func:`take_snapshots`; ``None`` takes a new one.
    :param storage_options: options of the table's store, for listing the directories.
    :raises NoSuchObjectError: if the table or a named partition does not exist.
    :raises ConfigurationError: if the table is a view, belongs to a storage handler, or is in an unsupported
        format; or if ``columns`` or ``where`` do not fit the table.
    :raises AcidFormatError: if the table's directories break Hive's layout.
    """
    database, _, table_name = name.partition(".")
    table = client.get_table(database, table_name)
    _refuse_unreadable(table, name)
    parameters = table.parameters or {}
    transactional = is_transactional(table)
    full_acid = transactional and parameters.get("transactional_properties", "").lower() != "insert_only"
    if full_acid and table.sd.inputFormat != _ORC:
        raise ConfigurationError(
            f"{name} is in a format that full ACID tables cannot have: {table.sd.inputFormat}.",
            remedy="Compare its definition with SHOW CREATE TABLE: Hive keeps full ACID tables as ORC.",
        )
    if row_ids and not full_acid:
        raise ConfigurationError(
            f"{name} is not a full ACID table: its rows have no ROW__ID.", remedy="Read it without row_ids."
        )
    if transactional and snapshot is None:
        snapshot = take_snapshots(client, [name])[name.lower()]
    data = [Column.of(field.name, field.type) for field in table.sd.cols]
    keys = [Column.of(field.name, field.type) for field in table.partitionKeys or []]
    _refuse_unknown_columns(name, columns or (), [*data, *keys])
    predicate = None if where is None else Predicate(spark, where)
    directories = directories_to_read(
        client, table, partitions, snapshot=snapshot, predicate=predicate, storage_options=storage_options
    )
    if full_acid and snapshot is not None:
        rows = visible_rows(
            spark,
            directories,
            data,
            write_ids=snapshot.write_ids,
            partition_keys=keys,
            row_ids=row_ids,
            only=columns if predicate is None else None,
            storage_options=storage_options,
        )
        if predicate is None:
            return rows
    else:
        rows = plain_table(spark, table, directories, data, keys, storage_options=storage_options)
    if predicate is not None:
        rows = predicate.applied(rows)
    if columns is None:
        return rows
    return rows.select(*([ROW_ID_COLUMN] if row_ids else []), *(f"`{column.lower()}`" for column in columns))


def visible_rows(
    spark: SparkSession,
    directories: Sequence[PartitionState],
    columns: Sequence[Column],
    *,
    write_ids: ValidWriteIds,
    partition_keys: Sequence[Column] = (),
    row_ids: bool = False,
    only: Sequence[str] | None = None,
    storage_options: StorageOptions | None = None,
) -> DataFrame:
    """Read the rows that are visible in snapshots of a full ACID table's directories.

    A directory whose write-id range is wholly valid is read without a filter; files without deleted rows are
    read without a look-up of deletes.

    :param directories: the table, or partitions of it, with their snapshots.
    :param columns: the table's columns, without partition keys.
    :param write_ids: the valid write ids of the snapshots.
    :param partition_keys: the table's partition keys, in order.
    :param row_ids: add ``ROW__ID`` as the first column.
    :param only: columns and partition keys to return, in this order; ``None`` returns all.
    :param storage_options: storage options for reading ``_flush_length`` files.
    :raises AcidFormatError: if a file's name has no bucket.
    """
    first_columns = None if only is None else _first_ones(columns, only)
    columns = first_columns or columns
    schema = spark_schema(columns)
    places = [PartitionScan.of(spark, directory).with_rows(storage_options) for directory in directories]
    reading = _Reading(spark, schema, write_ids, storage_options, as_a_whole=first_columns is not None)
    changed = [place for place in places if place.state.delete_deltas]
    deletes = read_deletes(changed, write_ids, storage_options)
    untouched, touched = _split(places, changed, deletes)
    results: list[scan.Rows] = []
    for group, with_deletes in ((untouched, False), (touched, True)):
        group_rows = _insert_rows(reading, group, identities=row_ids or with_deletes)
        if not group_rows:
            continue
        rows = _together(group_rows)
        if partition_keys or (with_deletes and len(changed) > 1):
            located = changed if with_deletes else places
            rows = _located(spark, rows, located, partition_keys, row_ids=row_ids)
        if with_deletes:
            rows = _joined(reading, rows, changed) if deletes is None else deletes.without(spark, rows)
        results.append(rows)
    if not results:
        empty = scan.Rows.named(no_rows(spark, schema), [*schema.names, *scan.KEYS, scan.FILE])
        results.append(_located(spark, empty, places, partition_keys, row_ids=row_ids))
    keys = [key.name for key in partition_keys]
    names = [*schema.names, *keys] if only is None else [name.lower() for name in only]
    return scan.union([_chosen(rows, columns, names, row_ids=row_ids) for rows in results])


def _together(scans: Sequence[scan.Rows]) -> scan.Rows:
    if len(scans) == 1:
        return scans[0]
    return scan.Rows.named(scan.union([rows.made() for rows in scans]), scans[0].columns)


def _located(
    spark: SparkSession,
    rows: scan.Rows,
    places: Sequence[PartitionScan],
    keys: Sequence[Column],
    *,
    row_ids: bool,
) -> scan.Rows:
    # Writers number the rows of every partition from 0: a row's identity includes its partition.
    texts = [scan.PARTITION] if row_ids and keys else []
    frame = with_partition_values(spark, rows.made(), places, keys, texts_too=bool(texts))
    return scan.Rows.named(frame, [*rows.columns, *(key.name for key in keys), *texts, scan.PLACE])


def _chosen(rows: scan.Rows, columns: Sequence[Column], names: Sequence[str], *, row_ids: bool) -> DataFrame:
    """Select columns and partition keys, in the form in which Hive shows them."""
    texts = {name.lower(): text for name, text in rows.columns.items()}
    texts |= {column.name.lower(): shown(column, texts[column.name.lower()]) for column in columns}
    chosen = [f"{texts[name.lower()]} as {scan.quoted(name)}" for name in names]
    if row_ids:
        write_id, bucket, row = (rows.columns[key] for key in scan.KEYS)
        fields = [f"{write_id} as writeid", f"{bucket} as bucketid", f"{row} as rowid"]
        if scan.PARTITION in rows.columns:
            fields.append(f"{rows.columns[scan.PARTITION]} as {PARTITION_FIELD}")
        chosen.insert(0, f"struct({', '.join(fields)}) as {ROW_ID_COLUMN}")
    return rows.frame.selectExpr(*chosen)


def _first_ones(columns: Sequence[Column], only: Sequence[str]) -> Sequence[Column] | None:
    """Return the columns named, in the table's order, if they are its first ones; ``None`` otherwise."""
    names = {name.lower() for name in only}
    wanted = [column for column in columns if column.name.lower() in names]
    return wanted if wanted and wanted == list(columns[: len(wanted)]) else None


def _split(
    places: Sequence[PartitionScan], changed: Sequence[PartitionScan], deletes: Deletes | None
) -> tuple[list[PartitionScan], list[PartitionScan]]:
    """Split the files of places into those without deleted rows and those that may have some.

    The second list holds the places of ``changed``, in their order.
    """
    untouched = [place for place in places if not place.state.delete_deltas]
    if deletes is None:
        return untouched, list(changed)
    touched = []
    for index, place in enumerate(changed):
        may_have, have_not = place.split(partial(_may_have_deleted, deletes, index))
        touched.append(may_have)
        untouched.append(have_not)
    return untouched, touched


def _may_have_deleted(
    deletes: Deletes, place: int, directory: AcidDirectory | None, entry: FileEntry
) -> bool:
    bucket = parse_file(entry.path.rpartition("/")[2]).bucket
    return deletes.touch(place, _write_ids_of(directory), bucket)


def _write_ids_of(directory: AcidDirectory | None) -> tuple[int, int]:
    # Rows from before the table became transactional have write id 0.
    if directory is None:
        return 0, 0
    base = directory.name.kind is DirectoryKind.BASE and not directory.raw
    return 0 if base else directory.name.min_write_id, max(0, directory.name.max_write_id)


def _joined(reading: _Reading, rows: scan.Rows, places: Sequence[PartitionScan]) -> scan.Rows:
    scans = _delete_scans(places)
    counts = _row_counts(
        [path for scan_of_deletes in scans for path in scan_of_deletes.paths], reading.storage_options
    )
    deleted = scan.deleted_keys(reading.spark, scans, reading.schema, reading.write_ids)
    located = with_partition_values(reading.spark, deleted, places, ())
    columns = {scan.PLACE: "0", **rows.columns}
    all_rows = scan.Rows(frame=rows.frame, columns=columns).made()
    return scan.Rows.named(scan.without(all_rows, located, at_most=sum(counts)), columns)


@dataclass(frozen=True)
class _Reading:
    spark: SparkSession
    schema: spark_types.StructType
    write_ids: ValidWriteIds
    storage_options: StorageOptions | None = field(repr=False)
    as_a_whole: bool
    """All columns of the schema are wanted: they may be read by position, without the identity columns."""


def _insert_rows(reading: _Reading, places: Sequence[PartitionScan], *, identities: bool) -> list[scan.Rows]:
    spark, schema = reading.spark, reading.schema
    regular: dict[bool, list[str]] = {False: [], True: []}
    by_arrow: list[RowFile] = []
    plain: list[tuple[PartitionScan, AcidDirectory | None, list[FileEntry]]] = []
    for place in places:
        if place.state.originals:
            plain.append((place, None, list(place.state.originals)))
        for directory in _insert_directories(place.state):
            if directory.raw:
                plain.append((place, directory, list(directory.files)))
                continue
            lengths = _flushed_lengths(reading, place, directory)
            by_arrow += [
                RowFile(
                    path=f"{place.path}/{path}",
                    directory=place.uri,
                    length=length,
                    write_ids=reading.write_ids,
                )
                for path, length in lengths.items()
                if length
            ]
            complete = [entry for entry in directory.files if entry.path not in lengths]
            regular[directory.mixed] += sorted(map(place.full, complete))
    for place, _, entries in plain:
        for entry in entries:
            _bucket_of(place, entry)
    scans = [scan.Scan(paths=tuple(paths), filtered=mixed) for mixed, paths in regular.items() if paths]
    paths_to_scan = [path for group in scans for path in group.paths]
    by_position = not scan.names_fit(paths_to_scan, schema, reading.storage_options) or reading.as_a_whole
    names = [*schema.names, *scan.KEYS, scan.FILE]
    results = [
        scan.acid_rows(spark, group, schema, reading.write_ids, by_position=by_position) for group in scans
    ]
    if plain and identities:
        by_arrow += _numbered(reading, plain)
    elif plain:
        paths = [place.full(entry) for place, _, entries in plain for entry in entries]
        results.append(scan.Rows.named(scan.plain_rows(spark, paths, schema, "orc"), names))
    if by_arrow:
        results.append(scan.Rows.named(scan.arrow_rows(spark, by_arrow, schema), names))
    return results


def _insert_directories(state: AcidState) -> Iterable[AcidDirectory]:
    return state.deltas if state.base is None else (state.base, *state.deltas)


def _delete_scans(places: Sequence[PartitionScan]) -> list[scan.Scan]:
    paths: dict[bool, list[str]] = {False: [], True: []}
    for place in places:
        for directory in place.state.delete_deltas:
            paths[directory.mixed] += [place.full(entry) for entry in directory.files]
    return [
        scan.Scan(paths=tuple(scan_paths), filtered=mixed)
        for mixed, scan_paths in paths.items()
        if scan_paths
    ]


def _flushed_lengths(reading: _Reading, place: PartitionScan, directory: AcidDirectory) -> dict[str, int]:
    """Return the length that counts of each file that counts in part (``AcidUtils.getLogicalLength``)."""
    sizes = {entry.path: entry.size_bytes for entry in directory.files}
    lengths = {
        data: read_flushed_length(f"{place.path}/{side}", reading.storage_options)
        for data, side in place.state.side_files.items()
        if data in sizes
    }
    return {path: length for path, length in lengths.items() if length is not None and length != sizes[path]}


def _numbered(
    reading: _Reading, plain: Sequence[tuple[PartitionScan, AcidDirectory | None, list[FileEntry]]]
) -> list[RowFile]:
    """Return the files without ACID columns, with the identities that Hive assigns to their rows.

    Rows are numbered by position, continuously through all copies of a bucket
    (``OrcRawRecordMerger.OriginalReaderPair``).
    """
    groups: list[tuple[PartitionScan, AcidDirectory | None, int, list[FileEntry]]] = []
    for place, directory, entries in plain:
        by_bucket: defaultdict[int, list[FileEntry]] = defaultdict(list)
        for entry in entries:
            by_bucket[_bucket_of(place, entry)].append(entry)
        groups += [(place, directory, bucket, copies) for bucket, copies in sorted(by_bucket.items())]
    several = [place.full(entry) for place, _, _, copies in groups if len(copies) > 1 for entry in copies]
    counts = dict(zip(several, _row_counts(several, reading.storage_options), strict=True))
    files = []
    for place, directory, bucket, copies in groups:
        statement = None if directory is None else directory.name.statement_id
        first = 0
        for entry in copies:
            path = place.full(entry)
            files.append(
                RowFile(
                    path=path,
                    directory=place.uri,
                    write_id=0 if directory is None else directory.name.max_write_id,
                    bucket=bucket_property(bucket, statement),
                    first_row=first,
                )
            )
            first += counts.get(path, 0)
    return files


def _row_counts(paths: Sequence[str], options: StorageOptions | None) -> list[int]:
    return each(paths, options, lambda file, _: int(file.nrows))


def _bucket_of(place: PartitionScan, entry: FileEntry) -> int:
    name = parse_file(entry.path.rpartition("/")[2])
    if name.bucket is None or name.kind is not FileKind.ORIGINAL:
        raise AcidFormatError(
            f"{place.full(entry)} lies in an ACID table, but its name contains no bucket number.",
            remedy="Move it away, and load it by LOAD DATA; Hive cannot read it either.",
            path=place.full(entry),
        )
    return name.bucket


def _refuse_unknown_columns(table: str, chosen: Sequence[str], known: Sequence[Column]) -> None:
    names = {column.name.lower() for column in known}
    unknown = [name for name in chosen if name.lower() not in names]
    if unknown:
        raise ConfigurationError(
            f"{table} has no column {', '.join(unknown)}.",
            remedy=f"Choose among {', '.join(column.name for column in known)}.",
        )


def _refuse_unreadable(table: types.Table, name: str) -> None:
    if table.tableType in {"VIRTUAL_VIEW", "MATERIALIZED_VIEW"} or not table.sd.location:
        raise ConfigurationError(f"{name} is a view.", remedy="Read the tables it selects from.")
    handler = (table.parameters or {}).get("storage_handler")
    if handler:
        raise ConfigurationError(
            f"The rows of {name} are stored by {handler}, not in files.",
            remedy="Read it by the engine that has this handler, for instance by Hive.",
        )

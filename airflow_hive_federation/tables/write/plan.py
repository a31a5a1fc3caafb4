"""Derives the layout of a table for a write, and refuses unsupported tables, without any input or output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_hive_federation.acid.names import DirectoryKind, DirectoryName, bucket_file
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import partition_name
from airflow_hive_federation.model.remote_links import WRITE_THERE, remote_of
from airflow_hive_federation.model.types import Column, HiveType
from airflow_hive_federation.orc.properties import (
    NO_FILTERS,
    BloomFilters,
    bloom_filters,
    merged_properties,
    orc_compression,
)
from airflow_hive_federation.tables.read.formats.text import TextForm, text_form
from airflow_hive_federation.tables.write.partition_values import value_text

MAX_BUCKET = 4095
"""Highest bucket number: Hive's row ids have 12 bits for the bucket (``BucketCodec.V1``)."""
_MOST_BUCKETS_OF_FRAGMENTS = 16
_ORC = "org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat"
_PARQUET = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
_TEXT = "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"
_FORMATS = {_ORC: "orc", _PARQUET: "parquet", _TEXT: "text"}
_UNSTORABLE = {"uniontype", "interval_year_month", "interval_day_time", "void"}


@dataclass(frozen=True, kw_only=True)
class Buckets:
    """The columns and the hash by which rows are distributed among buckets.

    :param columns: types of the bucket columns by their places among the table's columns, in the order of
        CLUSTERED BY.
    :param count: the number of buckets.
    :param version: the table's ``bucketing_version``.
    """

    columns: Mapping[int, HiveType]
    count: int
    version: int


@dataclass(frozen=True, kw_only=True)
class TableLayout:
    """The properties of a transactional table that a writer needs.

    :param file_format: ``acid``, or for an insert-only table ``orc``, ``parquet`` or ``text``.
    :param bucket_columns: columns of CLUSTERED BY; empty if rows may lie in any bucket.
    :param bucket_count: the number of buckets; 0 if the table is not bucketed.
    :param sort_columns: columns of SORTED BY; the flag is true for ascending order.
    :param compression: pyarrow's name of the ORC compression.
    :param filters: Bloom filters of ORC files.
    :param text: form of the lines, if the format is text.
    :param not_null: columns in which Hive enforces that no value is null.
    :param checks: names and conditions of the CHECK constraints that Hive enforces.
    """

    database: str
    table: str
    location: str
    file_format: str
    columns: tuple[Column, ...]
    partition_keys: tuple[Column, ...] = ()
    bucket_columns: tuple[str, ...] = ()
    bucket_count: int = 0
    bucketing_version: int = 2
    sort_columns: tuple[tuple[str, bool], ...] = ()
    compression: str = "zlib"
    filters: BloomFilters = NO_FILTERS
    text: TextForm | None = None
    not_null: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return ``database.table``."""
        return f"{self.database}.{self.table}"

    @property
    def buckets(self) -> Buckets | None:
        """Return the distribution of rows among buckets; ``None`` if rows may lie in any bucket."""
        if not self.bucket_count:
            return None
        names = [column.name for column in self.columns]
        places = map(names.index, self.bucket_columns)
        kinds = {place: self.columns[place].type for place in places}
        return Buckets(columns=kinds, count=self.bucket_count, version=self.bucketing_version)

    @property
    def is_full_acid(self) -> bool:
        """Return whether the rows have identities and can be changed."""
        return self.file_format == "acid"

    @property
    def key_names(self) -> list[str]:
        """Return the names of the partition keys."""
        return [key.name for key in self.partition_keys]


def table_layout(table: types.Table) -> TableLayout:
    """Return the layout of a table of the metastore.

    :raises ConfigurationError: if the table is remote, a view or not transactional, has an unsupported format
        or column type, or has more buckets than row ids can hold.
    """
    name = f"{table.dbName}.{table.tableName}"
    parameters = {key.lower(): value for key, value in (table.parameters or {}).items()}
    _refuse(table, name, parameters)
    storage = table.sd
    columns = tuple(Column.of(field.name.lower(), field.type) for field in storage.cols)
    for column in columns:
        _check_storable(name, column.name, column.type)
    buckets = storage.numBuckets if storage.bucketCols and storage.numBuckets > 0 else 0
    if buckets > MAX_BUCKET + 1:
        raise ConfigurationError(f"{name} has {buckets} buckets, but row ids end at bucket {MAX_BUCKET}.")
    insert_only = parameters.get("transactional_properties", "").lower() == "insert_only"
    # The table's properties take precedence over the SerDe's (``MetaStoreUtils.getSchema``).
    properties = merged_properties(storage.serdeInfo.parameters if storage.serdeInfo else None, parameters)
    file_format = _FORMATS[storage.outputFormat] if insert_only else "acid"
    return TableLayout(
        database=table.dbName.lower(),
        table=table.tableName.lower(),
        location=storage.location.rstrip("/"),
        file_format=file_format,
        columns=columns,
        partition_keys=tuple(Column.of(key.name.lower(), key.type) for key in table.partitionKeys or []),
        bucket_columns=tuple(bucket_column.lower() for bucket_column in storage.bucketCols)
        if buckets
        else (),
        bucket_count=buckets,
        bucketing_version=int(parameters.get("bucketing_version", "1")),
        sort_columns=tuple((sorting.col.lower(), sorting.order == 1) for sorting in storage.sortCols or []),
        compression=orc_compression(name, properties),
        filters=bloom_filters(
            name, properties, [(schema_field.name, schema_field.type) for schema_field in storage.cols]
        ),
        text=text_form(table, columns) if file_format == "text" else None,
    )


def _refuse(table: types.Table, name: str, parameters: Mapping[str, str]) -> None:
    if remote := remote_of(parameters):
        raise ConfigurationError(f"{name} stands for the remote table {remote}.", remedy=WRITE_THERE)
    if table.tableType in {"VIRTUAL_VIEW", "MATERIALIZED_VIEW"} or not table.sd.location:
        raise ConfigurationError(f"{name} is a view.", remedy="Write to the tables it selects from.")
    if parameters.get("transactional", "").lower() != "true":
        raise ConfigurationError(
            f"{name} is not transactional.", remedy="Write to it as to any table: df.write.insertInto."
        )
    insert_only = parameters.get("transactional_properties", "").lower() == "insert_only"
    if table.sd.outputFormat not in (_FORMATS if insert_only else {_ORC}):
        raise ConfigurationError(
            f"{name} is in a format that cannot be written: {table.sd.outputFormat}.",
            remedy="Full ACID tables are ORC; insert-only ones may be ORC, Parquet or text.",
        )


def _check_storable(table: str, column: str, hive_type: HiveType) -> None:
    if hive_type.name in _UNSTORABLE:
        raise ConfigurationError(
            f"{table}: column {column} is of type {hive_type}, which cannot be written.",
            remedy="Let Hive write this table.",
        )
    for child in (*hive_type.children, *(field.type for field in hive_type.fields)):
        _check_storable(table, column, child)


def is_written_in_fragments(layout: TableLayout, *, one_partition: bool) -> bool:
    """Return whether rows are encoded before Spark brings the rows of a bucket together.

    They are not if buckets are sorted, or if there are so many buckets that their stripes would be small.

    :param one_partition: all rows go to the same partition, or the table has none.
    """
    is_apt = layout.is_full_acid and one_partition and not layout.sort_columns
    return is_apt and 0 < layout.bucket_count <= _MOST_BUCKETS_OF_FRAGMENTS


def refuse_checks(layout: TableLayout) -> None:
    """Refuse new rows of a table with enabled CHECK constraints, which only Hive can evaluate.

    :raises ConfigurationError: the table has such a constraint; the message names it.
    """
    if layout.checks:
        raise ConfigurationError(
            f"{layout.name} has a CHECK constraint that only Hive can evaluate: {'; '.join(layout.checks)}.",
            remedy="Write its rows by Hive, or drop the constraint (ALTER TABLE … DROP CONSTRAINT).",
        )


@dataclass(frozen=True, kw_only=True)
class ColumnMatch:
    """The assignment of the caller's columns to the table's columns.

    :param sources: the caller's column for every column of the table, in the table's order.
    :param dynamic: the caller's column for every partition key whose value comes from the rows.
    :param static: value texts of the other partition keys.
    """

    sources: tuple[str, ...]
    dynamic: Mapping[str, str]
    static: Mapping[str, str]


def match_columns(
    layout: TableLayout, given: Sequence[str], partition: Mapping[str, object] | None
) -> ColumnMatch:
    """Match a frame's columns with the table's by name, without regard to case.

    :param partition: static values of partition keys; ``None`` as a value is Hive's default partition.
    :raises ConfigurationError: if columns are missing, unknown or given twice; the message names them. Also
        if the table has a CHECK constraint.
    """
    refuse_checks(layout)
    static = static_values(layout, partition)
    by_name: dict[str, str] = {}
    for column in given:
        if column.lower() in by_name:
            raise ConfigurationError(
                f"{layout.name}: the rows have column {column.lower()} twice.",
                remedy="Select each column once.",
            )
        by_name[column.lower()] = column
    wanted = [column.name for column in layout.columns]
    dynamic = [key for key in layout.key_names if key not in static]
    missing = [name for name in (*wanted, *dynamic) if name not in by_name]
    unknown = [name for name in by_name if name not in {*wanted, *dynamic}]
    if missing or unknown:
        problems = [f"without {', '.join(missing)}"] if missing else []
        problems += [f"with {', '.join(unknown)}, which the table does not have"] if unknown else []
        raise ConfigurationError(
            f"The rows for {layout.name} come {' and '.join(problems)}.",
            remedy="Select the table's columns, and the partition keys that have no static value.",
            missing=missing,
            unknown=unknown,
        )
    return ColumnMatch(
        sources=tuple(by_name[name] for name in wanted),
        dynamic={key: by_name[key] for key in dynamic},
        static=static,
    )


def static_values(layout: TableLayout, partition: Mapping[str, object] | None) -> dict[str, str]:
    """Return the value texts of the given partition keys.

    :raises ConfigurationError: if the table does not have a key, or a value does not fit the key's type.
    """
    given = {key.lower(): value for key, value in (partition or {}).items()}
    for key in given:
        if key not in layout.key_names:
            raise ConfigurationError(
                f"{layout.name} has no partition key {key}.",
                remedy=f"It has {', '.join(layout.key_names) or 'none'}.",
            )
    types = {key.name: key.type for key in layout.partition_keys}
    return {key: _static_value(layout, key, types[key], value) for key, value in given.items()}


def _static_value(layout: TableLayout, key: str, hive_type: HiveType, value: object) -> str:
    try:
        return value_text(value, hive_type)
    except ValueError as error:
        raise ConfigurationError(
            f"{layout.name}: partition key {key} is of type {hive_type}, which {value!r} is not: {error}.",
            remedy="Give a value of the key's type, or None for Hive's default partition.",
        ) from error


@dataclass(frozen=True, kw_only=True)
class StagedFile:
    """A file that a task has written under a hidden name, before it is published.

    :param path: URI of the file.
    :param values: value texts of its partition.
    :param bucket: its bucket number.
    :param row_count: its number of rows.
    :param deletes: the file belongs to a delete delta.
    """

    path: str
    values: tuple[str, ...]
    bucket: int
    row_count: int
    size_bytes: int
    deletes: bool = False


def check_one_file_per_bucket(table: str, files: Sequence[StagedFile]) -> None:
    """Check that no bucket of a partition was written twice, which would give rows equal identities.

    :raises ConfigurationError: if a bucket was written twice.
    """
    seen: set[tuple[tuple[str, ...], int]] = set()
    for file in files:
        if (file.values, file.bucket) in seen:
            raise ConfigurationError(
                f"{table}: bucket {file.bucket} of partition {file.values} was written by two tasks.",
                remedy="Write the rows to a table first, because Spark computed them differently each time.",
            )
        seen.add((file.values, file.bucket))


@dataclass(frozen=True, kw_only=True)
class Destination:
    """The final names of a statement's files, for stores on which a rename is a copy.

    A partition that lies outside of its table's directory gets its files from there, by a copy.

    :param location: URI of the table's directory.
    :param key_names: names of the partition keys.
    :param directory: name of the statement's directory in each partition.
    """

    location: str
    key_names: tuple[str, ...]
    directory: str
    is_full_acid: bool

    def uri(self, values: Sequence[str], bucket: int) -> str:
        """Return the URI of the file of a bucket in a partition."""
        home = f"{self.location}/{partition_name(self.key_names, values)}" if values else self.location
        return f"{home}/{self.directory}/{file_name(bucket, is_full_acid=self.is_full_acid)}"


def file_name(bucket: int, *, is_full_acid: bool) -> str:
    """Return the name of the file of a bucket."""
    return bucket_file(bucket, 0) if is_full_acid else f"{bucket:06d}_0"


def statement_directory(write_id: int, statement_id: int, *, deletes: bool, overwrite: bool) -> str:
    """Return the name of the directory that a statement writes in a partition."""
    if overwrite:
        kind, statement = DirectoryKind.BASE, None
    else:
        kind, statement = DirectoryKind.DELETE_DELTA if deletes else DirectoryKind.DELTA, statement_id
    return str(DirectoryName(kind=kind, min_write_id=write_id, max_write_id=write_id, statement_id=statement))


def partition_names(layout: TableLayout, values: Sequence[Sequence[str]]) -> list[str]:
    """Return the names of partitions, as Hive writes them."""
    return [partition_name(layout.key_names, texts) for texts in values]

"""Reads insert-only and non-transactional tables, whose visible files are plain ORC, Parquet or text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql import types as spark_types

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.types import Column, HiveType
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.tables.read import scan
from airflow_hive_federation.tables.read.formats.forms import FileForm, file_form
from airflow_hive_federation.tables.read.formats.parquet import parquet_rows
from airflow_hive_federation.tables.read.formats.text import TextForm
from airflow_hive_federation.tables.read.partition_scans import (
    PartitionScan,
    PartitionState,
    no_rows,
    shown,
    with_partition_values,
)
from airflow_hive_federation.tables.spark_internals import cast_or_null, cast_strictly, time_zone
from airflow_hive_federation.tables.spark_types import spark_schema, spark_type

# Whole base 64, and every text that Hive would decode as base 64.
_BASE_64 = r"\A([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\z"
_LIKE_BASE_64 = r"\A[A-Za-z0-9+/=_\s-]*\z"


def plain_table(
    spark: SparkSession,
    table: types.Table,
    directories: Sequence[PartitionState],
    columns: Sequence[Column],
    keys: Sequence[Column],
    *,
    storage_options: StorageOptions | None = None,
) -> DataFrame:
    """Read the visible files of a table's directories.

    :param table: the metastore's table.
    :param directories: the table, or partitions of it, with their snapshots.
    :param storage_options: options for reading the footers of Parquet files with dates.
    :raises ConfigurationError: if the files are in an unsupported format.
    """
    schema = spark_schema(columns)
    places: defaultdict[FileForm, list[PartitionScan]] = defaultdict(list)
    for directory in directories:
        places[file_form(table, directory.location, directory.storage, columns)].append(
            PartitionScan.of(spark, directory)
        )
    frames = []
    for form, alike in places.items():
        # Spark skips files of no bytes, which have no footer to read. A partition may lie inside another's
        # directory: its files are listed for both, and belong to the inner one.
        entries = {
            place.full(entry): None for place in alike for entry in place.state.files() if entry.size_bytes
        }
        for rows in _rows(spark, list(entries), schema, form, storage_options):
            frames.append(with_partition_values(spark, rows, alike, keys))
    if not frames:
        empty = no_rows(spark, schema)
        frames.append(empty.withColumns({key.name: fn.lit(None).cast(spark_type(key.type)) for key in keys}))
    selected = {column.name: shown(column, scan.quoted(column.name)) for column in columns}
    selected |= {key.name: scan.quoted(key.name) for key in keys}
    return scan.union([scan.Rows(frame=frame, columns=selected).made() for frame in frames])


def _rows(
    spark: SparkSession,
    paths: list[str],
    schema: spark_types.StructType,
    form: FileForm,
    storage_options: StorageOptions | None,
) -> list[DataFrame]:
    if not paths:
        return []
    if form.text is not None:
        return [_text_rows(spark, paths, schema, form.text, form.types)]
    if form.file_format == "parquet":
        return parquet_rows(spark, paths, schema, storage_options)
    return [scan.plain_rows(spark, paths, schema, form.file_format)]


def _text_rows(
    spark: SparkSession,
    paths: Sequence[str],
    schema: spark_types.StructType,
    form: TextForm,
    types: Sequence[HiveType | None],
) -> DataFrame:
    parts = fn.split(fn.col("value"), f"\\Q{form.delimiter}\\E", -1)
    # Without lineSep, Spark ends lines as Hive does: by Hadoop's LineReader, at \n, \r and \r\n.
    lines = spark.read.options(**scan.STRICT).text(scan.escaped(paths))
    session_zone, zone = str(spark.conf.get("spark.sql.session.timeZone")), time_zone(spark)
    values = []
    for index, (field, kind) in enumerate(zip(schema.fields, types, strict=True)):
        text = fn.get(fn.col("parts"), fn.lit(index))
        text = fn.when(text != form.null, text) if kind else fn.lit(None).cast("string")
        parsed = spark_type(kind) if kind else field.dataType
        value = cast_or_null(spark, text, parsed)
        if parsed == spark_types.BinaryType():
            value = _bytes(text)
        if parsed == spark_types.TimestampType():
            value = scan.at_same_clock(value, session_zone, zone)
        values.append(cast_strictly(spark, value, field.dataType).alias(field.name))
    file = fn.col("_metadata.file_path").alias(scan.FILE)
    return lines.select(parts.alias("parts"), file).select(*values, scan.FILE)


def _bytes(text: SparkColumn) -> SparkColumn:
    """Read bytes as Hive does: decode base 64, and take any other text as it is (``LazyBinary``)."""
    unclear = fn.concat(fn.lit("Hive would read this as bytes in base 64, but it is incomplete: "), text)
    return (
        fn.when(text.rlike(_BASE_64), fn.unbase64(text))
        .when(text.rlike(_LIKE_BASE_64), fn.raise_error(unclear).cast("binary"))
        .otherwise(text.cast("binary"))
    )

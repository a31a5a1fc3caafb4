"""Reads Parquet files of Hive tables, by the calendar and the clock of their dates and timestamps.

By default Hive writes the days before 15 October 1582 in the Julian calendar, and records this in the footer
(``DataWritableWriteSupport``); Spark reads files of other writers in the proleptic calendar.

A timestamp is a wall clock to Hive. Hive writes one of two forms. The first is the instant at which the clock
of its own zone showed that time (INT96, ``NanoTimeUtils``), always in days as above, with the zone's name in
the footer. The second is the wall clock itself (INT64, not adjusted to UTC), which Spark takes for the clock
of UTC.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pyarrow import parquet
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql import types as spark_types

from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.tables.read import scan
from airflow_hive_federation.tables.read.footers import parquet_footers
from airflow_hive_federation.tables.spark_internals import standard_offset_s, time_zone

_WRITER, _PROLEPTIC = b"writer.model.name", b"writer.date.proleptic"
_ZONE, _STANDARD = b"writer.time.zone", b"writer.zone.conversion.legacy"
_ASKED = {_WRITER, _PROLEPTIC, _ZONE, _STANDARD}
_ADJUSTED = "isAdjustedToUTC"
# In seconds since 1970.
_GREGORIAN_START, _YEAR_1900 = -12_219_292_800, -2_208_988_800


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The clock by which a writer converted wall clocks to instants.

    :param zone: its time zone; ``None`` stands for the reader's.
    :param standard: before 1900 the clock showed the zone's present standard time, as
        ``java.util.TimeZone`` has it, not solar time, as ``java.time`` has it.
    """

    zone: str | None
    standard: bool


@dataclass(frozen=True, kw_only=True)
class ParquetForm:
    """The common properties of Parquet files that one scan reads.

    :param julian: their dates before 15 October 1582 are dates of the Julian calendar.
    :param clock: the clock by which INT96 was written; ``None`` if INT96 means instants, as in Spark.
    :param instants: columns with INT96 timestamps, in lower case.
    :param wall_clocks: columns with timestamps that are wall clocks, in lower case.
    """

    julian: bool = False
    clock: Clock | None = None
    instants: frozenset[str] = frozenset()
    wall_clocks: frozenset[str] = frozenset()


def parquet_form(metadata: parquet.FileMetaData) -> ParquetForm:
    """Return the form of a Parquet file, according to its footer."""
    properties = {key: value.decode() for key, value in (metadata.metadata or {}).items() if key in _ASKED}
    by_hive = _WRITER in properties
    instants, wall_clocks = set(), set()
    for index in range(len(metadata.schema)):
        leaf = metadata.schema.column(index)
        name = leaf.path.partition(".")[0].lower()
        if leaf.physical_type == "INT96":
            instants.add(name)
        elif leaf.logical_type.type == "TIMESTAMP" and not json.loads(leaf.logical_type.to_json())[_ADJUSTED]:
            wall_clocks.add(name)
    clock = None
    if instants and not str(metadata.created_by).startswith("parquet-mr"):
        # Java's Parquet library has not written the file, so Hive has not, and Hive does not convert it
        # (hive.parquet.timestamp.skip.conversion).
        clock = Clock(zone="UTC", standard=False)
    elif instants and by_hive:
        # Without the property, the writer converted the old way
        # (DataWritableReadSupport.getZoneConversionLegacy).
        clock = Clock(zone=properties.get(_ZONE), standard=properties.get(_STANDARD) != "false")
    return ParquetForm(
        julian=by_hive and properties.get(_PROLEPTIC) != "true",
        clock=clock,
        instants=frozenset(instants),
        wall_clocks=frozenset(wall_clocks),
    )


def parquet_rows(
    spark: SparkSession,
    paths: list[str],
    schema: spark_types.StructType,
    storage_options: StorageOptions | None,
) -> list[DataFrame]:
    """Read Parquet files, with Hive's timestamps by the clock of the JVM's time zone.

    :return: frames with the columns of :func:`.scan.plain_rows`.
    :raises FileVanishedError: if a file is gone.
    :raises AcidFormatError: if a file is not a whole Parquet file.
    """
    if not any(has_timestamps(field.dataType) or _has_dates(field.dataType) for field in schema.fields):
        return [scan.plain_rows(spark, paths, schema, "parquet")]
    by_form: defaultdict[ParquetForm, list[str]] = defaultdict(list)
    for path, metadata in parquet_footers(paths, storage_options):
        by_form[parquet_form(metadata)].append(path)
    return [_rows(spark, form_paths, schema, form) for form, form_paths in by_form.items()]


def _rows(
    spark: SparkSession, paths: Sequence[str], schema: spark_types.StructType, form: ParquetForm
) -> DataFrame:
    fields = [
        spark_types.StructField(
            field.name,
            without_zone(field.dataType) if field.name.lower() in form.wall_clocks else field.dataType,
        )
        for field in schema.fields
    ]
    # The option concerns dates only: the other timestamps of Hive's files are wall clocks, which have only
    # one calendar.
    options = {"datetimeRebaseMode": "LEGACY" if form.julian else "CORRECTED"}
    rows = scan.plain_rows(spark, paths, spark_types.StructType(fields), "parquet", options)
    session_zone, zone = str(spark.conf.get("spark.sql.session.timeZone")), time_zone(spark)
    changed = {}
    for field in schema.fields:
        column = fn.col(scan.quoted(field.name))
        if not has_timestamps(field.dataType):
            continue
        if field.name.lower() in form.wall_clocks:
            cast = column.cast(field.dataType)  # Spark casts by the session's clock.
            changed[field.name] = each_timestamp(
                cast, field.dataType, partial(scan.at_same_clock, theirs=session_zone, ours=zone)
            )
        elif field.name.lower() in form.instants and form.clock is not None:
            changed[field.name] = each_timestamp(column, field.dataType, partial(_shown, spark, form.clock))
    return rows.withColumns(changed) if changed else rows


def _shown(spark: SparkSession, clock: Clock, instant: SparkColumn) -> SparkColumn:
    """Return the instant at which our clock shows the wall clock that the writer's clock showed."""
    ours = time_zone(spark)
    zone = clock.zone or ours
    modern = scan.at_same_clock(instant, zone, ours)
    seconds = fn.unix_seconds(instant)
    # As in orc.calendars: days are counted from 1 March of the Julian year 0; four such years have 1,461.
    year = fn.floor((4 * (fn.floor(seconds / 86_400) + 719_470) + 3) / 1_461)
    shift = fn.floor(year / 100) - fn.floor(year / 400) - 2
    proleptic = fn.when(seconds >= _GREGORIAN_START, instant).otherwise(_later(instant, -shift * 86_400))
    if clock.standard:
        offset = standard_offset_s(spark, zone)
        theirs = _later(proleptic, fn.lit(offset))
    else:
        theirs = fn.from_utc_timestamp(proleptic, zone)
    return fn.when(seconds >= _YEAR_1900, modern).otherwise(fn.to_utc_timestamp(theirs, ours))


def _later(instant: SparkColumn, seconds: SparkColumn) -> SparkColumn:
    return fn.timestamp_micros(fn.unix_micros(instant) + seconds.cast("bigint") * 1_000_000)


def has_timestamps(kind: spark_types.DataType) -> bool:
    """Return whether a type is or contains a timestamp."""
    return isinstance(kind, spark_types.TimestampType) or any(map(has_timestamps, _inside(kind)))


def without_zone(kind: spark_types.DataType) -> spark_types.DataType:
    """Return a type with wall clocks in place of timestamps."""
    if isinstance(kind, spark_types.TimestampType):
        return spark_types.TimestampNTZType()
    if isinstance(kind, spark_types.ArrayType):
        return spark_types.ArrayType(without_zone(kind.elementType))
    if isinstance(kind, spark_types.MapType):
        return spark_types.MapType(without_zone(kind.keyType), without_zone(kind.valueType))
    if isinstance(kind, spark_types.StructType):
        fields = [spark_types.StructField(field.name, without_zone(field.dataType)) for field in kind.fields]
        return spark_types.StructType(fields)
    return kind


def each_timestamp(
    value: SparkColumn, kind: spark_types.DataType, change: Callable[[SparkColumn], SparkColumn]
) -> SparkColumn:
    """Apply a change to every timestamp in a column."""
    if not has_timestamps(kind):
        return value
    if isinstance(kind, spark_types.ArrayType):
        return fn.transform(value, lambda item: each_timestamp(item, kind.elementType, change))
    if isinstance(kind, spark_types.MapType):
        keys = fn.transform(fn.map_keys(value), lambda key: each_timestamp(key, kind.keyType, change))
        values = fn.transform(fn.map_values(value), lambda item: each_timestamp(item, kind.valueType, change))
        return fn.map_from_arrays(keys, values)
    if isinstance(kind, spark_types.StructType):
        fields = [
            each_timestamp(value.getField(field.name), field.dataType, change).alias(field.name)
            for field in kind.fields
        ]
        return fn.when(value.isNotNull(), fn.struct(*fields))
    return change(value)


def _has_dates(kind: spark_types.DataType) -> bool:
    return isinstance(kind, spark_types.DateType) or any(map(_has_dates, _inside(kind)))


def _inside(kind: spark_types.DataType) -> list[spark_types.DataType]:
    if isinstance(kind, spark_types.ArrayType):
        return [kind.elementType]
    if isinstance(kind, spark_types.MapType):
        return [kind.keyType, kind.valueType]
    return [field.dataType for field in kind.fields] if isinstance(kind, spark_types.StructType) else []

"""Parquet files of Hive's tables: the calendar and the clock of their dates and timestamps.

Unless it is told otherwise, Hive writes the days of the Julian calendar before 15 October 1582, and says so
(``DataWritableWriteSupport``); Spark takes files that are not its own for proleptic.

A timestamp is a wall clock to Hive. What it writes is the instant at which its own zone's clock showed that
(INT96, ``NanoTimeUtils``), in days as above always, and it names the zone; or else what the clock shows
(INT64 that is not adjusted to UTC), which Spark takes for the clock of UTC.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyarrow import parquet
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql import types as spark_types

from airflow_hive_federation.tables.read import scan
from airflow_hive_federation.tables.read.footers import parquet_footers

_WRITER, _PROLEPTIC = b"writer.model.name", b"writer.date.proleptic"
_ZONE, _STANDARD = b"writer.time.zone", b"writer.zone.conversion.legacy"
_ASKED = {_WRITER, _PROLEPTIC, _ZONE, _STANDARD}
_ADJUSTED = "isAdjustedToUTC"
# In seconds since 1970.
_GREGORIAN_START, _YEAR_1900 = -12_219_292_800, -2_208_988_800


@dataclass(frozen=True, kw_only=True)
class Clock:
    """A writer's clock.

    :param zone: its time zone; ``None`` stands for the reader's.
    :param standard: before 1900 it went by the zone's present standard time, as ``java.util.TimeZone`` does,
        not by the sun, as ``java.time`` does.
    """

    zone: str | None
    standard: bool


@dataclass(frozen=True, kw_only=True)
class ParquetForm:
    """What files have in common that are read together.

    :param julian: their dates before 15 October 1582 are those of the Julian calendar.
    :param clock: by which INT96 was written; ``None`` where instants are meant, as Spark means them.
    :param instants: columns with timestamps of INT96, in lower case.
    :param wall_clocks: columns with timestamps that are wall clocks, in lower case.
    """

    julian: bool = False
    clock: Clock | None = None
    instants: frozenset[str] = frozenset()
    wall_clocks: frozenset[str] = frozenset()


def parquet_form(metadata: parquet.FileMetaData) -> ParquetForm:
    """Take from a file's footer how it is to be read."""
    said = {key: value.decode() for key, value in (metadata.metadata or {}).items() if key in _ASKED}
    by_hive = _WRITER in said
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
        # hive.parquet.timestamp.skip.conversion: Java's Parquet library has not made it, so Hive has not.
        clock = Clock(zone="UTC", standard=False)
    elif instants and by_hive:
        # Who does not say how, did it the old way (DataWritableReadSupport.getZoneConversionLegacy).
        clock = Clock(zone=said.get(_ZONE), standard=said.get(_STANDARD) != "false")
    return ParquetForm(
        julian=by_hive and said.get(_PROLEPTIC) != "true",
        clock=clock,
        instants=frozenset(instants),
        wall_clocks=frozenset(wall_clocks),
    )


def parquet_rows(
    spark: SparkSession,
    paths: list[str],
    schema: spark_types.StructType,
    storage_options: Mapping[str, Any] | None,
) -> list[DataFrame]:
    """Read Parquet files, with timestamps as Hive shows them, by the clock of the JVM's time zone.

    :return: frames with the columns of :func:`.scan.plain_rows`.
    :raises FileVanishedError: if a file is gone.
    :raises AcidFormatError: if one is no whole Parquet file.
    """
    if not any(has_timestamps(field.dataType) or _has_dates(field.dataType) for field in schema.fields):
        return [scan.plain_rows(spark, paths, schema, "parquet")]
    by_form: defaultdict[ParquetForm, list[str]] = defaultdict(list)
    for path, metadata in parquet_footers(paths, storage_options):
        by_form[parquet_form(metadata)].append(path)
    return [_rows(spark, some, schema, form) for form, some in by_form.items()]


def _rows(
    spark: SparkSession, paths: Sequence[str], schema: spark_types.StructType, form: ParquetForm
) -> DataFrame:
    asked = [
        spark_types.StructField(
            one.name, without_zone(one.dataType) if one.name.lower() in form.wall_clocks else one.dataType
        )
        for one in schema.fields
    ]
    # Only dates: the other timestamps of Hive's files are wall clocks, which have but one calendar.
    options = {"datetimeRebaseMode": "LEGACY" if form.julian else "CORRECTED"}
    rows = scan.plain_rows(spark, paths, spark_types.StructType(asked), "parquet", options)
    session_zone, zone = str(spark.conf.get("spark.sql.session.timeZone")), scan.jvm_zone(spark)
    changed = {}
    for one in schema.fields:
        column = fn.col(scan.quoted(one.name))
        if not has_timestamps(one.dataType):
            continue
        if one.name.lower() in form.wall_clocks:
            cast = column.cast(one.dataType)  # by the session's clock
            changed[one.name] = each_timestamp(
                cast, one.dataType, partial(scan.at_same_clock, theirs=session_zone, ours=zone)
            )
        elif one.name.lower() in form.instants and form.clock is not None:
            changed[one.name] = each_timestamp(column, one.dataType, partial(_shown, spark, form.clock))
    return rows.withColumns(changed) if changed else rows


def _shown(spark: SparkSession, clock: Clock, instant: SparkColumn) -> SparkColumn:
    """Return when our clock shows what the writer's did."""
    ours = scan.jvm_zone(spark)
    zone = clock.zone or ours
    modern = scan.at_same_clock(instant, zone, ours)
    seconds = fn.unix_seconds(instant)
    # As in orc.calendars: days since 1 March of the Julian year 0, of which four years have 1,461.
    year = fn.floor((4 * (fn.floor(seconds / 86_400) + 719_470) + 3) / 1_461)
    shift = fn.floor(year / 100) - fn.floor(year / 400) - 2
    proleptic = fn.when(seconds >= _GREGORIAN_START, instant).otherwise(_later(instant, -shift * 86_400))
    if clock.standard:
        offset = scan.standard_offset_s(spark, zone)
        theirs = _later(proleptic, fn.lit(offset))
    else:
        theirs = fn.from_utc_timestamp(proleptic, zone)
    return fn.when(seconds >= _YEAR_1900, modern).otherwise(fn.to_utc_timestamp(theirs, ours))


def _later(instant: SparkColumn, seconds: SparkColumn) -> SparkColumn:
    return fn.timestamp_micros(fn.unix_micros(instant) + seconds.cast("bigint") * 1_000_000)


def has_timestamps(kind: spark_types.DataType) -> bool:
    """Whether a type is, or has somewhere inside, a timestamp."""
    return isinstance(kind, spark_types.TimestampType) or any(map(has_timestamps, _inside(kind)))


def without_zone(kind: spark_types.DataType) -> spark_types.DataType:
    """Replace timestamps in a type by wall clocks."""
    if isinstance(kind, spark_types.TimestampType):
        return spark_types.TimestampNTZType()
    if isinstance(kind, spark_types.ArrayType):
        return spark_types.ArrayType(without_zone(kind.elementType))
    if isinstance(kind, spark_types.MapType):
        return spark_types.MapType(without_zone(kind.keyType), without_zone(kind.valueType))
    if isinstance(kind, spark_types.StructType):
        fields = [spark_types.StructField(one.name, without_zone(one.dataType)) for one in kind.fields]
        return spark_types.StructType(fields)
    return kind


def each_timestamp(
    value: SparkColumn, kind: spark_types.DataType, change: Callable[[SparkColumn], SparkColumn]
) -> SparkColumn:
    """Change every timestamp in a column."""
    if not has_timestamps(kind):
        return value
    if isinstance(kind, spark_types.ArrayType):
        return fn.transform(value, lambda one: each_timestamp(one, kind.elementType, change))
    if isinstance(kind, spark_types.MapType):
        keys = fn.transform(fn.map_keys(value), lambda one: each_timestamp(one, kind.keyType, change))
        values = fn.transform(fn.map_values(value), lambda one: each_timestamp(one, kind.valueType, change))
        return fn.map_from_arrays(keys, values)
    if isinstance(kind, spark_types.StructType):
        fields = [
            each_timestamp(value.getField(one.name), one.dataType, change).alias(one.name)
            for one in kind.fields
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
    return [one.dataType for one in kind.fields] if isinstance(kind, spark_types.StructType) else []

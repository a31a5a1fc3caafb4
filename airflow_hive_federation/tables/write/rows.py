"""Arranges rows for files: selects columns, computes buckets, and sorts the rows of each file together."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import DataType, StructType

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.partitions import DEFAULT_PARTITION
from airflow_hive_federation.model.types import Column, HiveType
from airflow_hive_federation.tables.read.partition_scans import typed_value
from airflow_hive_federation.tables.read.reader import PARTITION_FIELD, ROW_ID_COLUMN
from airflow_hive_federation.tables.spark_internals import cast_strictly, rebalanced
from airflow_hive_federation.tables.spark_types import spark_type
from airflow_hive_federation.tables.write.bucket_columns import with_bucket_numbers
from airflow_hive_federation.tables.write.plan import MAX_BUCKET, ColumnMatch, TableLayout

_BUCKET, _FOUND, _STAYS = "__bucket", "__found", "__stays"
_IDS = ("__write_id", "__bucket_property", "__row_id")


def prepared(
    layout: TableLayout, rows: DataFrame, match: ColumnMatch, *, in_place: bool = False
) -> DataFrame:
    """Select the table's columns by position, with their types, followed by the partition value texts.

    :param in_place: the rows replace others. They stay in the partition of their ``ROW__ID``, and in its
        bucket, whose number comes last.
    """
    spark = rows.sparkSession
    given = {field.name: field.dataType for field in rows.schema}
    columns = [
        _typed(spark, source, given[source], column.type).alias(f"c{index}")
        for index, (source, column) in enumerate(zip(match.sources, layout.columns, strict=True))
    ]
    texts = []
    for index, key in enumerate(layout.partition_keys):
        if in_place:
            text = _own_text(index)
        elif key.name in match.static:
            text = fn.lit(match.static[key.name])
        else:
            text = _text(spark, _quoted(match.dynamic[key.name]), key)
        texts.append(text.alias(f"p{index}"))
    kept = [_bucket_of_row_id().alias(_BUCKET)] if in_place and not layout.bucket_count else []
    return rows.select(*columns, *texts, *kept)


def arranged(layout: TableLayout, rows: DataFrame, zone: str, *, placed: bool = False) -> DataFrame:
    """Bring the rows of each partition and bucket together, in the order of SORTED BY.

    The bucket number is the last column.

    :param zone: time zone whose wall clock is stored for a timestamp.
    :param placed: the rows have a column with their bucket, though the table is not bucketed.
    """
    if layout.buckets:
        count, version = layout.buckets.count, layout.buckets.version
        hashed = [(f"c{place}", kind) for place, kind in layout.buckets.columns.items()]
        rows = with_bucket_numbers(rows, _BUCKET, hashed, buckets=count, version=version, zone=zone)
    keys = [f"p{index}" for index in range(len(layout.partition_keys))]
    positions = {column.name: index for index, column in enumerate(layout.columns)}
    order = [
        fn.col(f"c{positions[name]}").asc() if ascending else fn.col(f"c{positions[name]}").desc()
        for name, ascending in layout.sort_columns
    ]
    if layout.bucket_count or placed:
        keys.append(_BUCKET)
        # Before Spark 4.1, buckets may share a task, which sorts them apart.
        if len(keys) == 1 and layout.bucket_count and hasattr(rows, "repartitionById"):
            rows = rows.repartitionById(layout.bucket_count, fn.col(_BUCKET))
            return rows.sortWithinPartitions(*order) if order else rows
        return rows.repartition(*keys).sortWithinPartitions(*keys, *order)
    if keys:
        # Spark splits large partitions and combines small ones: each task has files of its own.
        return rebalanced(rows, keys).sortWithinPartitions(*keys, *order)
    return rows.sortWithinPartitions(*order) if order else rows


def as_texts(layout: TableLayout, rows: DataFrame, zone: str) -> DataFrame:
    """Convert the table's columns to texts."""
    session_zone = rows.sparkSession.conf.get("spark.sql.session.timeZone") or zone
    texts = {
        f"c{index}": _as_text(fn.col(f"c{index}"), column.type, session_zone=session_zone, zone=zone)
        for index, column in enumerate(layout.columns)
    }
    return rows.withColumns(texts)


def row_keys(layout: TableLayout, rows: DataFrame) -> DataFrame:
    """Select the identities of rows to change, their partition value texts, and a flag that they stay there.

    Hive's ``ROW__ID`` is unique within a partition only. The partition is therefore that in which the row was
    read, whatever its partition keys are now.

    :raises ConfigurationError: if the frame lacks ``ROW__ID``, the partition in it, or a partition key.
    """
    by_name = {column.lower(): column for column in rows.columns}
    missing = [required for required in (ROW_ID_COLUMN.lower(), *layout.key_names) if required not in by_name]
    if layout.partition_keys and not missing and not _names_partition(rows):
        missing = [f"{ROW_ID_COLUMN.lower()}.{PARTITION_FIELD}"]
    if missing:
        raise ConfigurationError(
            f"The rows of {layout.name} to change come without {', '.join(missing)}.",
            remedy="Read them by read_table(…, row_ids=True), and keep ROW__ID and the partition keys.",
            missing=missing,
        )
    spark = rows.sparkSession
    stays = fn.lit(True)
    for index, key in enumerate(layout.partition_keys):
        text = _own_text(index)
        shown = typed_value(fn.when(text != DEFAULT_PARTITION, text), key)
        stays &= _text(spark, shown, key) == _text(spark, _quoted(by_name[key.name]), key)
    return _identities(layout, rows, stays.alias(_STAYS))


def existing_keys(layout: TableLayout, rows: DataFrame) -> DataFrame:
    """Select the identities of rows as they were just read, and their partition value texts."""
    return _identities(layout, rows)


def _identities(layout: TableLayout, rows: DataFrame, *more: SparkColumn) -> DataFrame:
    parts = zip(("writeid", "bucketid", "rowid"), _IDS, strict=True)
    return rows.select(
        *(fn.col(ROW_ID_COLUMN).getField(part).alias(name) for part, name in parts),
        *(_own_text(index).alias(f"p{index}") for index in range(len(layout.partition_keys))),
        *more,
    )


def _names_partition(rows: DataFrame) -> bool:
    kind = {field.name.lower(): field.dataType for field in rows.schema}[ROW_ID_COLUMN.lower()]
    return isinstance(kind, StructType) and PARTITION_FIELD in kind.names


def _own_text(index: int) -> SparkColumn:
    """Return the text of a value of the partition in which a row was read."""
    # A frame of another table may have fewer values.
    text = fn.get(fn.col(ROW_ID_COLUMN).getField(PARTITION_FIELD), index)
    return fn.coalesce(text, fn.lit(DEFAULT_PARTITION))


def flagged(layout: TableLayout, keys: DataFrame, existing: DataFrame) -> DataFrame:
    """Add a flag that marks the existing ones among the rows to change, and sort them as in delete deltas.

    :param keys: identities of the rows to change, from :func:`row_keys`.
    :param existing: identities of all rows of the table, from :func:`existing_keys`.
    """
    texts = [f"p{index}" for index in range(len(layout.partition_keys))]
    joined = keys.join(existing.withColumn(_FOUND, fn.lit(True)), [*_IDS, *texts], "left")
    number = fn.expr(f"coalesce(shiftright({_IDS[1]}, 16) & {MAX_BUCKET}, 0)").alias(_BUCKET)
    is_there = fn.coalesce(fn.col(_FOUND), fn.lit(False)).alias(_FOUND)
    rows = joined.select(*_IDS, is_there, _STAYS, *texts, number)
    return rows.repartition(*texts, _BUCKET).sortWithinPartitions(*texts, _BUCKET, *_IDS)


def _bucket_of_row_id() -> SparkColumn:
    return fn.expr(f"shiftright({ROW_ID_COLUMN}.bucketid, 16) & {MAX_BUCKET}")


def _quoted(name: str) -> SparkColumn:
    return fn.col("`" + name.replace("`", "``") + "`")


def _typed(spark: SparkSession, name: str, given: DataType, hive_type: HiveType) -> SparkColumn:
    wanted = spark_type(hive_type)
    # A cast to the same type has no effect, but takes a millisecond to build.
    return _quoted(name) if given == wanted else cast_strictly(spark, _quoted(name), wanted)


def _text(spark: SparkSession, value: SparkColumn, key: Column) -> SparkColumn:
    """Return the text of a partition value, as in Hive's partition names."""
    text = cast_strictly(spark, value, spark_type(key.type)).cast("string")
    if key.type.name in _TEXTS:
        text = _TEXTS[key.type.name](text, key.type)
    return fn.when(text.isNull() | (text == ""), fn.lit(DEFAULT_PARTITION)).otherwise(text)


def _as_text(value: SparkColumn, hive_type: HiveType, *, session_zone: str, zone: str) -> SparkColumn:
    """Return the text of a typed column, as Hive writes it; timestamps show the wall clock of ``zone``."""
    if hive_type.name == "timestamp" and session_zone != zone:
        value = fn.convert_timezone(fn.lit(session_zone), fn.lit(zone), value.cast("timestamp_ntz"))
    text = value.cast("string")
    if hive_type.name == "binary":
        text = fn.regexp_replace(fn.base64(value), r"\s", "")
    if hive_type.name in {"char", "varchar"}:
        text = fn.substring(text, 1, hive_type.arguments[0])
    return fn.rpad(text, hive_type.arguments[0], " ") if hive_type.name == "char" else text


def _decimal_text(text: SparkColumn, kind: HiveType) -> SparkColumn:
    """Return the text of a decimal as ``HiveDecimal`` writes it: no exponent, no zeros at the fraction's end.

    Outside of ANSI mode, Spark writes an exponent for values below 0.000001.
    """
    if not kind.arguments[1]:
        return text
    digits = fn.regexp_replace(text, r"E.*|[.-]", "")
    # The zero in front keeps the cast valid for texts without an exponent, which ANSI mode may evaluate, too.
    exponent = fn.concat(fn.lit("0"), fn.regexp_extract(text, r"E-(\d+)$", 1)).cast("int")
    zeros = fn.call_function("repeat", fn.lit("0"), exponent - 1)
    plain = fn.concat(fn.regexp_extract(text, "^-", 0), fn.lit("0."), zeros, digits)
    return fn.regexp_replace(fn.when(text.contains("E"), plain).otherwise(text), r"\.?0+$", "")


_TextOf = Callable[[SparkColumn, HiveType], SparkColumn]
_TEXTS: dict[str, _TextOf] = {
    "decimal": _decimal_text,
    "char": lambda text, kind: fn.rtrim(fn.substring(text, 1, kind.arguments[0])),
    "varchar": lambda text, kind: fn.substring(text, 1, kind.arguments[0]),
}

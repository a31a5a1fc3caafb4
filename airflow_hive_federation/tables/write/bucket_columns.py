"""Computes the bucket numbers of rows as a Spark column.

The JVM computes the number if Spark's hash can be turned into Hive's; otherwise Spark's Python workers
compute it by :mod:`airflow_hive_federation.acid.bucketing`: from Spark 4.1 on, from the bucket columns alone;
before, all columns pass through them.

Spark's ``hash`` is the same Murmur3 with seed 42, over little-endian numbers. A constant hashed first turns
the seed 42 into Hive's seed 104729, and the bytes of the numbers are reversed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.pandas import functions as pandas_functions
from pyspark.sql.types import IntegerType, StructField, StructType

from airflow_hive_federation.acid.bucketing import bucket_numbers
from airflow_hive_federation.model.types import HiveType
from airflow_hive_federation.tables.write.columns import stored

_TO_HIVES_SEED = 1867871456
_BITS_32 = (1 << 32) - 1


def with_bucket_numbers(
    rows: DataFrame,
    name: str,
    columns: Sequence[tuple[str, HiveType]],
    *,
    buckets: int,
    version: int,
    zone: str,
) -> DataFrame:
    """Add an ``int`` column with the bucket number of each row, as the last one.

    :param name: name of the new column.
    :param columns: names and Hive types of the bucket columns, in the order of CLUSTERED BY.
    :param version: the table's bucketing version.
    :param zone: time zone whose wall clock is stored for a timestamp.
    """
    native = [_native(fn.col(column), hive_type, version) for column, hive_type in columns]
    known = [
        fn.coalesce(hashed.cast("bigint"), fn.lit(0).cast("bigint"))
        for hashed in native
        if hashed is not None
    ]
    if len(known) < len(columns):
        numbers = _numbers([kind for _, kind in columns], buckets=buckets, version=version, zone=zone)
        return _by_arrow(rows, name, [column for column, _ in columns], numbers)
    # In 64 bits, because Spark's int arithmetic fails on an overflow.
    code = reduce(lambda code, hashed: (code * 31 + hashed).bitwiseAND(fn.lit(_BITS_32)), known)
    number = fn.pmod(code.bitwiseAND(fn.lit(0x7FFFFFFF)), fn.lit(buckets)).cast("int")
    return rows.withColumn(name, number)


def _native(value: SparkColumn, hive_type: HiveType, version: int) -> SparkColumn | None:
    """Return the hash code as a JVM expression, null for null; ``None`` if the JVM cannot compute it."""
    name = hive_type.name
    if name in {"boolean", "tinyint"}:
        return value.cast("int")
    if name == "date":
        value = fn.unix_date(value)
    if name not in {"int", "date", "bigint"}:
        return None
    if version == 1:
        return value if name != "bigint" else None
    turned = _turned_64(value) if name == "bigint" else _turned_32(value)
    return fn.when(value.isNotNull(), fn.hash(fn.lit(_TO_HIVES_SEED), turned))


def _turned_32(value: SparkColumn) -> SparkColumn:
    def part(shift: int, mask: int) -> SparkColumn:
        moved = fn.shiftleft(value, shift) if shift > 0 else fn.shiftrightunsigned(value, -shift)
        return moved.bitwiseAND(fn.lit(mask).cast("int"))

    return (
        fn.shiftleft(value, 24)
        .bitwiseOR(part(8, 0x00FF0000))
        .bitwiseOR(part(-8, 0x0000FF00))
        .bitwiseOR(fn.shiftrightunsigned(value, 24))
    )


def _turned_64(value: SparkColumn) -> SparkColumn:
    low = _turned_32(_as_int(value))
    high = _turned_32(_as_int(fn.shiftright(value, 32)))
    return fn.shiftleft(low.cast("bigint"), 32).bitwiseOR(high.cast("bigint").bitwiseAND(fn.lit(_BITS_32)))


def _as_int(value: SparkColumn) -> SparkColumn:
    """Return the lower 32 bits of a bigint as an int; a cast under ANSI rules would fail."""
    lower = value.bitwiseAND(fn.lit(_BITS_32))
    return fn.when(lower > 0x7FFFFFFF, lower - (1 << 32)).otherwise(lower).cast("int")


def _numbers(
    column_types: Sequence[HiveType], *, buckets: int, version: int, zone: str
) -> Callable[..., pa.Array]:
    """Return the function of the bucket columns' arrays that the Python workers call."""

    def numbers(*arrays: pa.Array) -> pa.Array:
        kept = [stored(array, kind, zone) for array, kind in zip(arrays, column_types, strict=True)]
        return pa.array(bucket_numbers(kept, column_types, buckets=buckets, version=version))

    # Spark takes the kind of the function from its annotations.
    return numbers


def _by_arrow(
    rows: DataFrame, name: str, columns: Sequence[str], numbers: Callable[..., pa.Array]
) -> DataFrame:
    make: Any = getattr(pandas_functions, "arrow_udf", None)
    if make is not None:
        return rows.withColumn(name, make(numbers, "int")(*map(fn.col, columns)))
    places = [rows.columns.index(column) for column in columns]

    def numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            added = numbers(*(batch.column(place) for place in places))
            yield pa.RecordBatch.from_arrays([*batch.columns, added], names=[*batch.schema.names, name])

    schema = StructType([*rows.schema.fields, StructField(name, IntegerType())])
    return rows.mapInArrow(numbered, schema)

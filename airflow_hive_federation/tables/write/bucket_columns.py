"""Computes the bucket number of a row as a Spark column.

The JVM computes the number if Spark's hash can be turned into Hive's; otherwise Spark's Python workers
compute it by :mod:`airflow_hive_federation.acid.bucketing`.

Spark's ``hash`` is the same Murmur3 with seed 42, over little-endian numbers. A constant hashed first turns
the seed 42 into Hive's seed 104729, and the bytes of the numbers are reversed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as fn
from pyspark.sql.pandas.functions import arrow_udf

from airflow_hive_federation.acid.bucketing import bucket_numbers
from airflow_hive_federation.model.types import HiveType
from airflow_hive_federation.tables.write.columns import stored

_TO_HIVES_SEED = 1867871456
_BITS_32 = (1 << 32) - 1


def bucket_column(
    columns: Sequence[tuple[str, HiveType]], *, buckets: int, version: int, zone: str
) -> SparkColumn:
    """Return an ``int`` column with the bucket number of each row.

    :param columns: names and Hive types of the bucket columns, in the order of CLUSTERED BY.
    :param version: the table's bucketing version.
    :param zone: time zone whose wall clock is stored for a timestamp.
    """
    native = [_native(fn.col(name), hive_type, version) for name, hive_type in columns]
    known = [
        fn.coalesce(hashed.cast("bigint"), fn.lit(0).cast("bigint"))
        for hashed in native
        if hashed is not None
    ]
    if len(known) < len(columns):
        return _by_arrow(columns, buckets=buckets, version=version, zone=zone)
    # In 64 bits, because Spark's int arithmetic fails on an overflow.
    code = reduce(lambda code, hashed: (code * 31 + hashed).bitwiseAND(fn.lit(_BITS_32)), known)
    return fn.pmod(code.bitwiseAND(fn.lit(0x7FFFFFFF)), fn.lit(buckets)).cast("int")


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


def _by_arrow(
    columns: Sequence[tuple[str, HiveType]], *, buckets: int, version: int, zone: str
) -> SparkColumn:
    column_types = [hive_type for _, hive_type in columns]

    def numbers(*arrays: pa.Array) -> pa.Array:
        kept = [stored(array, kind, zone) for array, kind in zip(arrays, column_types, strict=True)]
        return pa.array(bucket_numbers(kept, column_types, buckets=buckets, version=version))

    # Spark takes the kind of the function from its annotations.
    make: Any = arrow_udf
    column: SparkColumn = make(numbers, "int")(*(fn.col(name) for name, _ in columns))
    return column

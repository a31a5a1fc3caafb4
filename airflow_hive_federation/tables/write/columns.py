"""Converts columns from Spark's form to the stored form of a Hive table, inside Spark's Python workers.

Spark and Hive differ in three types. Hive pads a ``char`` with spaces, but removes them in Parquet
(``DataWritableWriter``). Hive cuts a ``char`` and a ``varchar`` to their length in characters. A Hive
``timestamp`` is a wall clock without zone.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.model.types import HiveType
from airflow_hive_federation.orc.arrow_columns import arrow_type

_NESTED = {"array", "map", "struct"}


def stored(array: pa.Array, hive_type: HiveType, zone: str, *, padded: bool = True) -> pa.Array:
    """Convert a column of Spark's to its stored form.

    :param zone: name of the time zone whose wall clock is stored for a timestamp.
    :param padded: keep the spaces at the end of a ``char``.
    """
    if not needs_conversion(hive_type):
        return array
    if hive_type.name in _NESTED:
        return _stored_nested(array, hive_type, zone, padded=padded)
    if hive_type.name == "timestamp":
        return _wall_clock(array, zone)
    if hive_type.name in {"char", "varchar"}:
        return _of_length(array, hive_type, padded=padded)
    return array.cast(arrow_type(hive_type))


def _stored_nested(array: pa.Array, hive_type: HiveType, zone: str, *, padded: bool) -> pa.Array:
    def convert(values: pa.Array, kind: HiveType) -> pa.Array:
        return stored(values, kind, zone, padded=padded)

    if hive_type.name == "array":
        values = convert(array.values, hive_type.children[0])
        return pa.ListArray.from_arrays(_offsets(array), values)
    if hive_type.name == "map":
        keys = convert(array.keys, hive_type.children[0])
        items = convert(array.items, hive_type.children[1])
        return pa.MapArray.from_arrays(_offsets(array), keys, items)
    children = [convert(array.field(index), field.type) for index, field in enumerate(hive_type.fields)]
    mask = pc.is_null(array) if array.null_count else None
    return pa.StructArray.from_arrays(children, names=[field.name for field in hive_type.fields], mask=mask)


def needs_conversion(hive_type: HiveType) -> bool:
    """Return whether the stored form of a column of this type differs from Spark's form."""
    if hive_type.name in {"timestamp", "timestamp with local time zone", "char", "varchar", "struct"}:
        return True
    return any(needs_conversion(child) for child in hive_type.children)


def _wall_clock(array: pa.Array, zone: str) -> pa.Array:
    if array.type.tz is None:
        return array
    return pc.local_timestamp(array.cast(pa.timestamp("us", zone)))


def _of_length(array: pa.Array, hive_type: HiveType, *, padded: bool) -> pa.Array:
    length = hive_type.arguments[0]
    cut = pc.utf8_slice_codeunits(array, 0, length)
    if hive_type.name == "varchar":
        return cut
    return pc.utf8_rpad(cut, length) if padded else pc.utf8_rtrim(cut, " ")


def _offsets(array: pa.Array) -> pa.Array:
    """Return the offsets with the array's nulls among them, as ``from_arrays`` requires."""
    if not array.null_count:
        return array.offsets
    nulls = pa.concat_arrays([pc.is_null(array), pa.array([False])])
    return pc.if_else(nulls, pa.scalar(None, pa.int32()), array.offsets)

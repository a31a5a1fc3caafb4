"""Finds timestamps that pyarrow's ORC writer stores wrongly or does not know.

For an instant before 1970 with a fraction of a second, the writer rounds the seconds towards zero and stores
negative nanoseconds, on which Hive's readers fail. :mod:`.early_timestamps` encodes rows with such instants,
or with :mod:`.nanosecond_times`.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.orc.nanosecond_times import has_nanosecond_times

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def has_unstorable_timestamp(array: pa.Array) -> bool:
    """Return whether an array contains a timestamp, at any depth, that pyarrow's writer cannot store.

    Such a timestamp is before 1970 with a fraction of a second, or has the type
    :data:`.nanosecond_times.NANOSECOND_TIME`.
    """
    kind = array.type
    if pa.types.is_timestamp(kind):
        counts = array.cast(pa.int64())
        lowest = pc.min(counts).as_py()
        if lowest is None or lowest >= 0:
            return False
        early = counts.drop_null().to_numpy()
        return bool(((early < 0) & (early % _PER_SECOND[kind.unit] != 0)).any())
    if not pa.types.is_nested(kind) or has_nanosecond_times(kind):
        return has_nanosecond_times(kind)
    if pa.types.is_struct(kind):
        return any(has_unstorable_timestamp(array.field(index)) for index in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return has_unstorable_timestamp(array.flatten())
    return pa.types.is_map(kind) and len(array) > 0 and has_unstorable_timestamp(_entries(array))


def _entries(array: pa.MapArray) -> pa.StructArray:
    """Return the keys and values of a slice; pyarrow's attribute has those of the whole array."""
    first, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return array.values.slice(first, end - first)

"""Instants before 1970 with a fraction of a second, which pyarrow's ORC writer stores wrongly.

Of such an instant it stores nanoseconds below zero. So it is handed whole seconds instead, rounded as ORC
rounds them, and the streams of nanoseconds are made here: a stripe is taken apart, and put together with
them. What its statistics say of the bounds of these columns is left out.

The second before 1970 itself is not storable: the sign of its seconds is lost
(``TimestampTreeReader`` tells an early instant by seconds below zero).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.acid.arrow_columns import orc_width
from airflow_hive_federation.acid.orc.instants import shortened
from airflow_hive_federation.acid.orc.integers import Runs, runs_of
from airflow_hive_federation.acid.orc.streams import ROW_INDEX, SECONDARY, Stream, Streams
from airflow_hive_federation.acid.orc.tail import (
    _all,
    _fields,
    _message,
    _number,
    _varint_bytes,
    _varints,
)
from airflow_hive_federation.acid.orc.timestamps import has_unstorable_timestamp
from airflow_hive_federation.errors import AcidFormatError

Nanoseconds = np.ndarray[Any, np.dtype[np.int64]]
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# Below it, seconds are rounded down instead of towards zero (TimestampTreeReader, TimestampColumnWriter).
_ROUNDED_NANOSECONDS = 999_999
_BYTES = 2
_TIMESTAMP_STATISTICS = 9


def storable(rows: pa.Table) -> tuple[pa.Table, Mapping[int, Nanoseconds]]:
    """Make rows that pyarrow stores rightly.

    :return: the rows, and what streams of nanoseconds have to hold, by the columns' numbers in an ORC file.
    :raises AcidFormatError: an instant lies in the last second before 1970, or an early one in a map.
    """
    found: dict[int, Nanoseconds] = {}
    columns, number = [], 1
    for column in rows.columns:
        is_early = any(has_unstorable_timestamp(chunk) for chunk in column.chunks)
        columns.append(_storable(column.combine_chunks(), number, found) if is_early else column)
        number += orc_width(column.type)
    return (pa.table(columns, names=rows.column_names) if found else rows), found


def _storable(array: pa.Array, number: int, found: dict[int, Nanoseconds]) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    kind = array.type
    if not has_unstorable_timestamp(array):
        return array
    mask = pc.is_null(array) if array.null_count else None
    if pa.types.is_timestamp(kind):
        return _whole_seconds(array, number, found)
    if pa.types.is_struct(kind):
        children, place = [], number + 1
        # Null where the struct is, as ORC stores them.
        for child in array.flatten():
            children.append(_storable(child, place, found))
            place += orc_width(child.type)
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_list(kind):
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        values = _storable(array.flatten(), number + 1, found)
        return pa.ListArray.from_arrays(offsets, values, type=kind, mask=mask)
    raise AcidFormatError(
        "A map holds timestamps before 1970 with a fraction of a second, which cannot be written."
    )


def _whole_seconds(array: pa.Array, number: int, found: dict[int, Nanoseconds]) -> pa.Array:
    unit = _PER_SECOND[array.type.unit]
    values = pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    seconds, fraction = np.divmod(values, unit)
    nanoseconds = fraction * (10**9 // unit)
    is_early = (seconds < 0) & (fraction > 0)
    is_rounded = is_early & (nanoseconds > _ROUNDED_NANOSECONDS)
    if (is_rounded & (seconds == -1)).any():
        raise AcidFormatError(
            "A timestamp lies in the last second before 1970, whose fractions ORC cannot store.",
            remedy="Write whole seconds.",
        )
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    found[number] = shortened(nanoseconds[~nulls], 10**9)
    whole = np.where(is_early, (seconds + is_rounded) * unit, values)
    return pa.array(whole, pa.int64(), mask=nulls).cast(array.type)


def with_nanoseconds(streams: Streams, found: Mapping[int, Nanoseconds]) -> Streams:
    """Put streams of nanoseconds into a stripe.

    :param found: of each column, as many as it has values that are not null.
    """
    made = {column: runs_of(values, signed=False) for column, values in found.items()}

    def changed(stream: Stream) -> Stream:
        if stream.column in made and stream.kind == SECONDARY:
            return stream._replace(content=made[stream.column].content)
        if stream.column in made and stream.kind == ROW_INDEX:
            return stream._replace(content=_index(bytes(stream.content), made[stream.column]))
        return stream

    return replace(streams, streams=[changed(one) for one in streams.streams])


def without_bounds(statistics: bytes) -> bytes:
    """Leave out of a ``ColumnStatistics`` which timestamps are the first and the last."""
    return _message([field for field in _fields(statistics) if field[0] != _TIMESTAMP_STATISTICS])


def value_counts(stripe_statistics: bytes) -> list[int]:
    """Count the values of each column that are not null, by a ``StripeStatistics``."""
    return [_number(_fields(one), 1) for one in _all(_fields(stripe_statistics), 1)]


def _index(message: bytes, runs: Runs) -> bytes:
    """Change the positions of the stream, which is the column's last, in a ``RowIndex``.

    :param runs: the stream.
    """
    entries: list[tuple[int, int, int | bytes]] = []
    values = 0
    for entry in _all(_fields(message), 1):
        fields = _fields(entry)
        (statistics,) = _all(fields, 2)
        positions = list(_varints(b"".join(_all(fields, 1))))
        positions[-2:] = runs.place(values)
        packed = b"".join(map(_varint_bytes, positions))
        entries.append((1, _BYTES, _message([(1, _BYTES, packed), (2, _BYTES, without_bounds(statistics))])))
        values += _number(_fields(statistics), 1)
    return _message(entries)


def split(found: Mapping[int, Nanoseconds], counts: Sequence[Sequence[int]]) -> list[dict[int, Nanoseconds]]:
    """Share out values among the stripes they are in.

    :param counts: values of each column, stripe by stripe.
    """
    ends = {column: np.cumsum([one[column] for one in counts])[:-1] for column in found}
    parts = {column: np.split(values, ends[column]) for column, values in found.items()}
    return [{column: some[index] for column, some in parts.items()} for index in range(len(counts))]

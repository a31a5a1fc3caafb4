"""Columns of floats and doubles, made without an encoder: ORC stores them as Arrow has them.

Streams and statistics are those of the ORC specification, version 1.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_hive_federation.orc.protobuf import BYTES, FIXED64, VARINT, message_of
from airflow_hive_federation.orc.row_groups import Encoded, Presence, row_index
from airflow_hive_federation.orc.streams import DATA, Stream

# Fields of ColumnStatistics.
_COUNT, _DOUBLES, _HAS_NULL = 1, 3, 10
_KINDS = {pa.float32(): 5, pa.float64(): 6}
_DIRECT = b"\x08\x00"

_Values = np.ndarray[Any, np.dtype[np.floating[Any]]]


@dataclass(frozen=True)
class Floats:
    """A column.

    :param values: those that are not null.
    :param presence: which rows they are of.
    :param kind: its ``Type.Kind``.
    """

    values: _Values
    presence: Presence
    kind: int

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Floats | None:
        """Take a column's values; ``None`` if it is no such column, or has none, or some are not finite."""
        kind = _KINDS.get(column.type)
        if kind is None or column.null_count == len(column):
            return None
        there = column.drop_null() if column.null_count else column
        values = there.to_numpy()
        # Neither are their sums then.
        if not np.isfinite(max(-float(values.min()), float(values.max())) * len(values)):
            return None
        return cls(values, Presence.of(column), kind)

    def part(self, start: int, end: int) -> Floats:
        """The column of some of the rows."""
        first, last = map(self.presence.values_before, (start, end))
        return Floats(self.values[first:last], self.presence.part(start, end), self.kind)

    def encoded(self, number: int, stride: int) -> Encoded:
        """Make streams and statistics; see :class:`.made_columns.MadeColumn`."""
        entries = []
        for start, end in self.presence.groups(stride):
            first, last = map(self.presence.values_before, (start, end))
            places = (*self.presence.place(start), first * self.values.itemsize)
            entries.append((places, _statistics(self.values[first:last], end - start)))
        content = self.values.view(np.uint8).data
        streams = [row_index(number, entries), *self.presence.streams(number), Stream(DATA, number, content)]
        return Encoded(streams, _statistics(self.values, self.presence.rows), _DIRECT)


def _statistics(values: _Values, rows: int) -> bytes:
    told = [(3, float(values.sum(dtype=np.float64)))]
    if len(values):
        # Zeros of both signs are equal here, and are not where Java compares them.
        told += [(1, -(0.0 - float(values.min()))), (2, float(values.max()) + 0.0)]
    bounds = [(field, FIXED64, struct.pack("<d", value)) for field, value in sorted(told)]
    has_null = int(len(values) < rows)
    return message_of(
        [(_COUNT, VARINT, len(values)), (_DOUBLES, BYTES, message_of(bounds)), (_HAS_NULL, VARINT, has_null)]
    )

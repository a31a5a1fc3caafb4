"""Encodes columns of floats and doubles without pyarrow's encoder: ORC and Arrow store the same bytes.

Streams and statistics follow the ORC specification, version 1.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_hive_federation.model.protobuf import FIXED64
from airflow_hive_federation.orc.row_groups import Encoded, Presence, column_statistics, row_index
from airflow_hive_federation.orc.streams import DATA, Stream

_DOUBLES = 3  # field of ColumnStatistics
_KINDS = {pa.float32(): 5, pa.float64(): 6}
_DIRECT = b"\x08\x00"

_Values = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Floats:
    """A column of floats or doubles.

    :param values: the values that are not null.
    :param presence: the rows that have a value.
    :param kind: the column's ``Type.Kind``.
    """

    values: _Values
    presence: Presence
    kind: int

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Floats | None:
        """Return a column in this form; ``None`` for another type, only nulls, or a non-finite value."""
        kind = _KINDS.get(column.type)
        if kind is None or column.null_count == len(column):
            return None
        present = column.drop_null() if column.null_count else column
        values = present.to_numpy()
        # The sum of the values must be finite as well.
        if not np.isfinite(max(-float(values.min()), float(values.max())) * len(values)):
            return None
        return cls(values, Presence.of(column), kind)

    def part(self, start: int, end: int) -> Floats:
        """Return the column of a range of rows."""
        values = self.values[self.presence.values(start, end)]
        return Floats(values, self.presence.part(start, end), self.kind)

    def encoded(self, number: int, stride: int) -> Encoded:
        """Encode streams and statistics; see :class:`.encodable_columns.EncodableColumn`."""
        entries = []
        for place, values, rows in self.presence.groups(stride):
            places = (*place, values.start * self.values.itemsize)
            entries.append((places, _statistics(self.values[values], rows)))
        content = self.values.view(np.uint8).data
        streams = [row_index(number, entries), *self.presence.streams(number), Stream(DATA, number, content)]
        return Encoded(streams, _statistics(self.values, self.presence.rows), _DIRECT)


def _statistics(values: _Values, rows: int) -> bytes:
    numbers = [(3, float(values.sum(dtype=np.float64)))]
    if len(values):
        # The two signs of zero are equal here, but not in Java's comparisons.
        numbers += [(1, -(0.0 - float(values.min()))), (2, float(values.max()) + 0.0)]
    bounds = [(field, FIXED64, struct.pack("<d", value)) for field, value in sorted(numbers)]
    return column_statistics(len(values), rows, _DOUBLES, bounds)

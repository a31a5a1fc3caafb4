"""Columns of timestamps from 1970 on, made without an encoder; earlier ones are :mod:`.early_timestamps`'.

Streams and statistics are those of the ORC specification, version 1: seconds from 2015 on, and nanoseconds,
whose last three bits say how many zeros were taken off, less one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from airflow_hive_federation.acid.orc.integers import Numbers, has_shorter_form, runs_of
from airflow_hive_federation.acid.orc.row_groups import Encoded, Presence, row_index
from airflow_hive_federation.acid.orc.streams import DATA, SECONDARY, Stream
from airflow_hive_federation.acid.orc.tail import _message, _zigzag

_VARINT, _BYTES = 0, 2
# Fields of ColumnStatistics.
_COUNT, _TIMESTAMPS, _HAS_NULL = 1, 9, 10
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# Seconds from 1970 to 2015, from which ORC counts.
_BASE_S = 1_420_070_400
_MOST_ZEROS = 7
_NANOSECONDS_PER_MS = 10**6


@dataclass(frozen=True)
class Instants:
    """A column.

    :param values: those that are not null, from 1970 on.
    :param presence: which rows they are of.
    :param per_second: so many of the values' units are a second.
    :param kind: its ``Type.Kind``.
    """

    values: Numbers
    presence: Presence
    per_second: int
    kind: int

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Instants | None:
        """Take a column's values; ``None`` if it is no such column, has none, or has a shorter form."""
        if not pa.types.is_timestamp(column.type) or column.null_count == len(column):
            return None
        there = column.drop_null() if column.null_count else column
        values = there.cast(pa.int64()).to_numpy()
        per_second = _PER_SECOND[column.type.unit]
        if values.min() < 0 or has_shorter_form(values // per_second - _BASE_S):
            return None
        return cls(values, Presence.of(column), per_second, 18 if column.type.tz else 9)

    def part(self, start: int, end: int) -> Instants:
        """The column of some of the rows."""
        first, last = map(self.presence.values_before, (start, end))
        return Instants(self.values[first:last], self.presence.part(start, end), self.per_second, self.kind)

    def encoded(self, number: int, stride: int) -> Encoded:
        """Make streams and statistics; see :class:`.made_columns.MadeColumn`."""
        whole = self.values // self.per_second
        seconds = runs_of(whole - _BASE_S)
        fractions = self.values - whole * self.per_second
        nanoseconds = runs_of(shortened(fractions, self.per_second), signed=False)
        entries = []
        for start, end in self.presence.groups(stride):
            first, last = map(self.presence.values_before, (start, end))
            places = (*self.presence.place(start), *seconds.place(first), *nanoseconds.place(first))
            entries.append((places, self._statistics(self.values[first:last], end - start)))
        streams = [
            row_index(number, entries),
            *self.presence.streams(number),
            Stream(DATA, number, seconds.content),
            Stream(SECONDARY, number, nanoseconds.content),
        ]
        return Encoded(streams, self._statistics(self.values, self.presence.rows))

    def _statistics(self, values: Numbers, rows: int) -> bytes:
        fields: list[tuple[int, int, int | bytes]] = []
        if len(values):
            nanoseconds = [int(one) * (10**9 // self.per_second) for one in (values.min(), values.max())]
            (low, above_low), (high, above_high) = (divmod(one, _NANOSECONDS_PER_MS) for one in nanoseconds)
            fields = [(3, _VARINT, _zigzag(low)), (4, _VARINT, _zigzag(high))]
            fields += [(5, _VARINT, above_low + 1)] if above_low else []
            fields += [(6, _VARINT, above_high + 1)] if above_high < _NANOSECONDS_PER_MS - 1 else []
        told = (_TIMESTAMPS, _BYTES, _message(fields))
        return _message([(_COUNT, _VARINT, len(values)), told, (_HAS_NULL, _VARINT, int(len(values) < rows))])


def shortened(fractions: Numbers, per_second: int) -> Numbers:
    """Make what ORC stores of fractions of seconds.

    :param fractions: in units of which so many are a second, from 0 on.
    """
    values, zeros = fractions.copy(), np.zeros(len(fractions), np.int64)
    off = 10 - len(str(per_second))
    some = np.flatnonzero(values)
    if not off:
        # One zero alone is not taken off.
        some = some[values[some] % 100 == 0]
        values[some] //= 100
        off = 2
    zeros[some] = off - 1
    while len(some) and off <= _MOST_ZEROS:
        part = values[some]
        is_longer = part % 10 == 0
        some = some[is_longer]
        values[some] = part[is_longer] // 10
        zeros[some] = off
        off += 1
    return values << 3 | zeros

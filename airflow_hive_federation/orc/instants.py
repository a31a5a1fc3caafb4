"""Columns of timestamps from 1970 on, made without an encoder; earlier ones are :mod:`.early_timestamps`'.

Streams and statistics are those of the ORC specification, version 1: seconds from 2015 on, and nanoseconds,
whose last three bits say how many zeros were taken off, less one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from airflow_hive_federation.orc.arrow_columns import in_one_piece
from airflow_hive_federation.orc.exact_times import EXACT, parts
from airflow_hive_federation.orc.integers import Numbers, has_shorter_form, runs_of
from airflow_hive_federation.orc.protobuf import BYTES, VARINT, message_of, zigzag
from airflow_hive_federation.orc.row_groups import Encoded, Presence, row_index
from airflow_hive_federation.orc.streams import DATA, SECONDARY, Stream

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

    :param seconds: of those values that are not null, since 1970.
    :param fractions: what they have beyond.
    :param presence: which rows they are of.
    :param per_second: so many of the units of fractions are a second.
    :param kind: its ``Type.Kind``.
    """

    seconds: Numbers
    fractions: Numbers
    presence: Presence
    per_second: int
    kind: int

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Instants | None:
        """Take a column's values; ``None`` if it is no such column, has none, or has a shorter form."""
        is_exact = column.type == EXACT
        if not (is_exact or pa.types.is_timestamp(column.type)) or column.null_count == len(column):
            return None
        there = column.drop_null() if column.null_count else column
        if is_exact:
            per_second = 10**9
            seconds, fractions = parts(in_one_piece(there))
        else:
            per_second = _PER_SECOND[column.type.unit]
            values = there.cast(pa.int64()).to_numpy()
            seconds = values // per_second
            fractions = values - seconds * per_second
        # pyarrow's encoder would know no bounds of exact ones.
        if seconds.min() < 0 or (not is_exact and has_shorter_form(seconds - _BASE_S)):
            return None
        kind = 18 if not is_exact and column.type.tz else 9
        return cls(seconds, fractions, Presence.of(column), per_second, kind)

    def part(self, start: int, end: int) -> Instants:
        """The column of some of the rows."""
        first, last = map(self.presence.values_before, (start, end))
        return replace(
            self,
            seconds=self.seconds[first:last],
            fractions=self.fractions[first:last],
            presence=self.presence.part(start, end),
        )

    def encoded(self, number: int, stride: int) -> Encoded:
        """Make streams and statistics; see :class:`.made_columns.MadeColumn`."""
        seconds = runs_of(self.seconds - _BASE_S)
        nanoseconds = runs_of(shortened(self.fractions, self.per_second), signed=False)
        entries = []
        for start, end in self.presence.groups(stride):
            first, last = map(self.presence.values_before, (start, end))
            places = (*self.presence.place(start), *seconds.place(first), *nanoseconds.place(first))
            entries.append((places, self._statistics(first, last, end - start)))
        streams = [
            row_index(number, entries),
            *self.presence.streams(number),
            Stream(DATA, number, seconds.content),
            Stream(SECONDARY, number, nanoseconds.content),
        ]
        return Encoded(streams, self._statistics(0, len(self.seconds), self.presence.rows))

    def _statistics(self, first: int, last: int, rows: int) -> bytes:
        fields: list[tuple[int, int, int | bytes]] = []
        if first < last:
            seconds, fractions = self.seconds[first:last], self.fractions[first:last]
            unit = 10**9 // self.per_second
            low, high = int(seconds.min()), int(seconds.max())
            below, above = int(fractions[seconds == low].min()), int(fractions[seconds == high].max())
            low_ms, above_low = divmod(low * 10**9 + below * unit, _NANOSECONDS_PER_MS)
            high_ms, above_high = divmod(high * 10**9 + above * unit, _NANOSECONDS_PER_MS)
            fields = [(3, VARINT, zigzag(low_ms)), (4, VARINT, zigzag(high_ms))]
            fields += [(5, VARINT, above_low + 1)] if above_low else []
            fields += [(6, VARINT, above_high + 1)] if above_high < _NANOSECONDS_PER_MS - 1 else []
        told = (_TIMESTAMPS, BYTES, message_of(fields))
        count = last - first
        return message_of([(_COUNT, VARINT, count), told, (_HAS_NULL, VARINT, int(count < rows))])


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

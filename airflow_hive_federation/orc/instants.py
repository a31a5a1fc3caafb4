"""Encodes columns of timestamps from 1970 on without pyarrow's encoder.

:mod:`.early_timestamps` handles earlier timestamps. Streams and statistics follow the ORC specification,
version 1: seconds counted from 2015, and nanoseconds, whose last three bits are the number of removed zeros
less one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_hive_federation.model.protobuf import VARINT, Field, zigzag
from airflow_hive_federation.orc.arrow_columns import in_one_piece
from airflow_hive_federation.orc.integers import Numbers, has_shorter_form, runs_of
from airflow_hive_federation.orc.nanosecond_times import NANOSECOND_TIME, parts
from airflow_hive_federation.orc.row_groups import Encoded, Presence, column_statistics, row_index
from airflow_hive_federation.orc.streams import DATA, SECONDARY, Stream

_TIMESTAMPS = 9  # field of ColumnStatistics
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# Seconds from 1970 to 2015, the origin of ORC's count.
_BASE_S = 1_420_070_400
_MOST_ZEROS = 7
_NANOSECONDS_PER_MS = 10**6


@dataclass(frozen=True)
class Instants:
    """A column of timestamps.

    :param seconds: seconds since 1970 of the values that are not null.
    :param fractions: fractions of these values, in units of which ``per_second`` are a second.
    :param presence: the rows that have a value.
    :param per_second: number of units of the fractions per second.
    :param kind: the column's ``Type.Kind``.
    """

    seconds: Numbers
    fractions: Numbers
    presence: Presence
    per_second: int
    kind: int

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Instants | None:
        """Return a column in this form; ``None`` for another type, only nulls, or a shorter form of it."""
        is_nanosecond_time = column.type == NANOSECOND_TIME
        if not (is_nanosecond_time or pa.types.is_timestamp(column.type)) or column.null_count == len(column):
            return None
        present = column.drop_null() if column.null_count else column
        if is_nanosecond_time:
            per_second = 10**9
            seconds, fractions = parts(in_one_piece(present))
        else:
            per_second = _PER_SECOND[column.type.unit]
            values = present.cast(pa.int64()).to_numpy()
            seconds = values // per_second
            fractions = values - seconds * per_second
        # Such times stay here in any form, because pyarrow's encoder would write no bounds for them.
        if seconds.min() < 0 or (not is_nanosecond_time and has_shorter_form(seconds - _BASE_S)):
            return None
        kind = 18 if not is_nanosecond_time and column.type.tz else 9
        return cls(seconds, fractions, Presence.of(column), per_second, kind)

    def part(self, start: int, end: int) -> Instants:
        """Return the column of a range of rows."""
        values = self.presence.values(start, end)
        return replace(
            self,
            seconds=self.seconds[values],
            fractions=self.fractions[values],
            presence=self.presence.part(start, end),
        )

    def encoded(self, number: int, stride: int) -> Encoded:
        """Encode streams and statistics; see :class:`.encodable_columns.EncodableColumn`."""
        seconds = runs_of(self.seconds - _BASE_S)
        nanoseconds = runs_of(shortened(self.fractions, self.per_second), signed=False)
        entries = []
        for place, values, rows in self.presence.groups(stride):
            places = (*place, *seconds.place(values.start), *nanoseconds.place(values.start))
            entries.append((places, self._statistics(self.seconds[values], self.fractions[values], rows)))
        streams = [
            row_index(number, entries),
            *self.presence.streams(number),
            Stream(DATA, number, seconds.content),
            Stream(SECONDARY, number, nanoseconds.content),
        ]
        return Encoded(streams, self._statistics(self.seconds, self.fractions, self.presence.rows))

    def _statistics(self, seconds: Numbers, fractions: Numbers, rows: int) -> bytes:
        fields: list[Field] = []
        if len(seconds):
            unit = 10**9 // self.per_second
            low, high = int(seconds.min()), int(seconds.max())
            below, above = int(fractions[seconds == low].min()), int(fractions[seconds == high].max())
            low_ms, above_low = divmod(low * 10**9 + below * unit, _NANOSECONDS_PER_MS)
            high_ms, above_high = divmod(high * 10**9 + above * unit, _NANOSECONDS_PER_MS)
            fields = [(3, VARINT, zigzag(low_ms)), (4, VARINT, zigzag(high_ms))]
            fields += [(5, VARINT, above_low + 1)] if above_low else []
            fields += [(6, VARINT, above_high + 1)] if above_high < _NANOSECONDS_PER_MS - 1 else []
        return column_statistics(len(seconds), rows, _TIMESTAMPS, fields)


def shortened(fractions: Numbers, per_second: int) -> npt.NDArray[np.int64]:
    """Encode fractions of seconds in ORC's form.

    :param fractions: fractions from 0 on, in units of which ``per_second`` are a second.
    """
    values, zeros = fractions.copy(), np.zeros(len(fractions), np.int64)
    off = 10 - len(str(per_second))
    nonzero = np.flatnonzero(values)
    if not off:
        # ORC does not remove a single zero.
        nonzero = nonzero[values[nonzero] % 100 == 0]
        values[nonzero] //= 100
        off = 2
    zeros[nonzero] = off - 1
    while len(nonzero) and off <= _MOST_ZEROS:
        part = values[nonzero]
        is_longer = part % 10 == 0
        nonzero = nonzero[is_longer]
        values[nonzero] = part[is_longer] // 10
        zeros[nonzero] = off
        off += 1
    return values << 3 | zeros

"""Columns of whole numbers, or of dates, made without an encoder.

pyarrow's encoder looks at each value for the shortest form, and takes four times as long as numpy for all of
them. Where values are as good as random the form found is the same; where they repeat, count for a while, or
are mostly small, it is shorter than what is made here, so that such columns are left to it. Streams and
statistics are those of the ORC specification, version 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from airflow_hive_federation.orc.integers import Numbers, exact_sum, has_shorter_form, runs_of
from airflow_hive_federation.orc.protobuf import BYTES, VARINT, message_of, zigzag
from airflow_hive_federation.orc.row_groups import Encoded, Presence, row_index
from airflow_hive_federation.orc.streams import DATA, Stream

# Fields of ColumnStatistics.
_COUNT, _INTEGERS, _DATES, _HAS_NULL = 1, 2, 7, 10
_DATE = 15
_KINDS = {pa.int16(): 2, pa.int32(): 3, pa.int64(): 4, pa.date32(): _DATE}
_MAX_SUM = 2**63 - 1


@dataclass(frozen=True)
class WholeNumbers:
    """A column.

    :param values: those that are not null.
    :param presence: which rows they are of.
    :param kind: its ``Type.Kind``.
    """

    values: Numbers
    presence: Presence
    kind: int

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> WholeNumbers | None:
        """Take a column's values; ``None`` if it is no such column, has none, or has a shorter form."""
        found = cls.of_any(column)
        return None if found is None or has_shorter_form(found.values) else found

    @classmethod
    def of_any(cls, column: pa.ChunkedArray) -> WholeNumbers | None:
        """Take a column's values whatever they are; ``None`` if it is no such column, or has none."""
        kind = _KINDS.get(column.type)
        if kind is None or column.null_count == len(column):
            return None
        there = column.drop_null() if column.null_count else column
        values = there.cast(pa.int32()) if kind == _DATE else there
        return cls(values.to_numpy(), Presence.of(column), kind)

    def part(self, start: int, end: int) -> WholeNumbers:
        """The column of some of the rows."""
        first, last = map(self.presence.values_before, (start, end))
        return WholeNumbers(self.values[first:last], self.presence.part(start, end), self.kind)

    def encoded(self, number: int, stride: int) -> Encoded:
        """Make streams and statistics; see :class:`.made_columns.MadeColumn`."""
        runs = runs_of(self.values)
        entries = []
        for start, end in self.presence.groups(stride):
            first, last = map(self.presence.values_before, (start, end))
            places = (*self.presence.place(start), *runs.place(first))
            entries.append((places, self._statistics(self.values[first:last], end - start)))
        streams = [row_index(number, entries), *self._streams(number, runs.content)]
        return Encoded(streams, self._statistics(self.values, self.presence.rows))

    def plain(self) -> Encoded:
        """Make streams, without index, and statistics."""
        streams = list(self._streams(0, runs_of(self.values).content))
        return Encoded(streams, self._statistics(self.values, self.presence.rows))

    def _streams(self, number: int, content: bytes) -> Iterator[Stream]:
        yield from self.presence.streams(number)
        yield Stream(DATA, number, content)

    def _statistics(self, values: Numbers, rows: int) -> bytes:
        bounds = [(1, int(values.min())), (2, int(values.max()))] if len(values) else []
        if self.kind != _DATE:
            total = exact_sum(values)
            # A sum that does not fit is left out.
            bounds += [(3, total)] if ~_MAX_SUM <= total <= _MAX_SUM else []
        told = message_of([(field, VARINT, zigzag(value)) for field, value in bounds])
        kind = _DATES if self.kind == _DATE else _INTEGERS
        has_null = int(len(values) < rows)
        return message_of([(_COUNT, VARINT, len(values)), (kind, BYTES, told), (_HAS_NULL, VARINT, has_null)])

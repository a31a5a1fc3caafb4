"""Encodes columns of whole numbers or dates without pyarrow's encoder.

pyarrow's encoder searches for the shortest form of each value, and takes four times as long as numpy for a
whole column. For values that are almost random both find the same form. For values that repeat, count for a
while, or are mostly small, pyarrow's form is shorter, so such columns are left to pyarrow. Streams and
statistics follow the ORC specification, version 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from airflow_hive_federation.model.protobuf import VARINT, zigzag
from airflow_hive_federation.orc.integers import Numbers, exact_sum, has_shorter_form, runs_of
from airflow_hive_federation.orc.row_groups import Encoded, Presence, column_statistics, row_index
from airflow_hive_federation.orc.streams import DATA, Stream

# Fields of ColumnStatistics.
_INTEGERS, _DATES = 2, 7
_DATE = 15
_KINDS = {pa.int16(): 2, pa.int32(): 3, pa.int64(): 4, pa.date32(): _DATE}
_MAX_SUM = 2**63 - 1


@dataclass(frozen=True)
class WholeNumbers:
    """A column of whole numbers or dates.

    :param values: the values that are not null.
    :param presence: the rows that have a value.
    :param kind: the column's ``Type.Kind``.
    """

    values: Numbers
    presence: Presence
    kind: int

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> WholeNumbers | None:
        """Return a column in this form; ``None`` for another type, only nulls, or a shorter form of it."""
        numbers = cls.of_any(column)
        return None if numbers is None or has_shorter_form(numbers.values) else numbers

    @classmethod
    def of_any(cls, column: pa.ChunkedArray) -> WholeNumbers | None:
        """Return a column in this form whatever its values; ``None`` for another type, or only nulls."""
        kind = _KINDS.get(column.type)
        if kind is None or column.null_count == len(column):
            return None
        present = column.drop_null() if column.null_count else column
        values = present.cast(pa.int32()) if kind == _DATE else present
        return cls(values.to_numpy(), Presence.of(column), kind)

    def part(self, start: int, end: int) -> WholeNumbers:
        """Return the column of a range of rows."""
        values = self.values[self.presence.values(start, end)]
        return WholeNumbers(values, self.presence.part(start, end), self.kind)

    def encoded(self, number: int, stride: int) -> Encoded:
        """Encode streams and statistics; see :class:`.encodable_columns.EncodableColumn`."""
        runs = runs_of(self.values)
        entries = []
        for place, values, rows in self.presence.groups(stride):
            places = (*place, *runs.place(values.start))
            entries.append((places, self._statistics(self.values[values], rows)))
        streams = [row_index(number, entries), *self._streams(number, runs.content)]
        return Encoded(streams, self._statistics(self.values, self.presence.rows))

    def plain(self) -> Encoded:
        """Encode streams without an index, and statistics."""
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
        details = [(field, VARINT, zigzag(value)) for field, value in bounds]
        return column_statistics(len(values), rows, _DATES if self.kind == _DATE else _INTEGERS, details)

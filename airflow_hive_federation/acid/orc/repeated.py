"""Columns of a stripe that are one number for many rows on end, made without an encoder.

Four of the six columns of ACID files are such: operation, write ids and bucket. pyarrow's encoder looks at
each value, and takes as long for these four as for a number and a text of the user's. Here only their runs
are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.acid.arrow_columns import orc_width
from airflow_hive_federation.acid.orc.integers import RUN, integer_statistics, steps
from airflow_hive_federation.acid.orc.streams import DATA, ROW_INDEX, Stream, Streams
from airflow_hive_federation.acid.orc.tail import _message, _varint_bytes

#: A ``Type.Kind`` whose streams are laid out as those of the columns here.
WHOLE_NUMBERS = 4

_BYTES = 2
_DIRECT_V2 = b"\x08\x02"
_TYPES = (pa.int32(), pa.int64())
_Any = TypeVar("_Any")


@dataclass(frozen=True)
class RepeatedNumbers:
    """A column without nulls.

    :param values: its numbers, each once for all the rows on end that have it.
    :param starts: the first row of each, and at last how many rows there are.
    """

    values: tuple[int, ...]
    starts: tuple[int, ...]

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> RepeatedNumbers | None:
        """Find the numbers; ``None`` if it is no such column, or they change so often that runs are short."""
        runs = column.chunk(0) if pa.types.is_run_end_encoded(column.type) else None
        values = column if runs is None else runs.values
        if values.type not in _TYPES or values.null_count or not len(values):
            return None
        numbers = values.to_numpy()
        is_change = numbers[1:] != numbers[:-1]
        if np.count_nonzero(is_change) > len(column) // RUN:
            return None
        changes = np.flatnonzero(is_change)
        starts = changes + 1 if runs is None else runs.run_ends.to_numpy()[changes]
        return cls(tuple(numbers[[0, *(changes + 1)]].tolist()), (0, *starts.tolist(), len(column)))

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.starts[-1]

    def part(self, start: int, end: int) -> RepeatedNumbers:
        """The column of some of the rows."""
        found = list(self.pieces(start, end))
        starts = [at - start for _, at, _ in found]
        return RepeatedNumbers(tuple(self.values[place] for place, _, _ in found), (*starts, end - start))

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the numbers of some rows: which of the numbers, and between which rows."""
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        for place in range(first, len(self.values)):
            if self.starts[place] >= end:
                return
            yield place, max(start, self.starts[place]), min(end, self.starts[place + 1])

    def statistics(self, start: int, end: int) -> bytes:
        """Make the ``ColumnStatistics`` of some rows."""
        counted = [(self.values[place], to - at) for place, at, to in self.pieces(start, end)]
        values = [value for value, _ in counted]
        total = sum(value * count for value, count in counted)
        return integer_statistics(min(values), max(values), total, end - start)


def taken_out(rows: pa.Table) -> tuple[pa.Table, dict[int, RepeatedNumbers]]:
    """Take such columns out of a table, but leave at least one column.

    :param rows: columns may be run-end encoded, in one chunk; they come out at once, or decoded.
    :return: the table that is left, and those taken out by the number that each has in an ORC file.
    """
    found: dict[int, RepeatedNumbers] = {}
    left, number = [], 1
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        repeated = RepeatedNumbers.of(column)
        if repeated is None:
            left.append(name)
        else:
            found[number] = repeated
        number += orc_width(column.type)
    if not left:
        left, found = rows.column_names, {}
    return pa.table({name: _decoded(rows.column(name)) for name in left}), found


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column


def together(others: Sequence[_Any], columns: Mapping[int, _Any]) -> list[_Any]:
    """Put what there is of each column in the order of their numbers."""
    rest = iter(others)
    count = len(others) + len(columns)
    return [columns[number] if number in columns else next(rest) for number in range(count)]


def put_in(streams: Streams, columns: Mapping[int, RepeatedNumbers], stride: int) -> Streams:
    """Put columns that were taken out into a stripe.

    :param columns: by the numbers they get.
    :param stride: rows of a row group.
    """
    count = len(streams.encodings) + len(columns)
    numbers = [one for one in range(count) if one not in columns]
    moved = [one._replace(column=numbers[one.column]) for one in streams.streams]
    made = [one for number, column in columns.items() for one in _streams(number, column, stride)]
    return Streams(
        sorted([*made, *moved], key=lambda one: one.kind != ROW_INDEX),
        together(streams.encodings, dict.fromkeys(columns, _DIRECT_V2)),
        streams.others,
    )


def _streams(number: int, column: RepeatedNumbers, stride: int) -> Iterator[Stream]:
    content = bytearray()
    begins = []
    for place, start, end in column.pieces(0, column.rows):
        begins.append(len(content))
        content += steps(column.values[place], 0, end - start)
    entries = []
    for start in range(0, column.rows, stride):
        place = next(column.pieces(start, start + 1))[0]
        run, inside = divmod(start - column.starts[place], RUN)
        # Runs of one number are of one length, whatever they count.
        offset = begins[place] + run * len(steps(column.values[place], 0, 1))
        statistics = column.statistics(start, min(start + stride, column.rows))
        places = _varint_bytes(offset) + _varint_bytes(inside)
        entries.append((1, _BYTES, _message([(1, _BYTES, places), (2, _BYTES, statistics)])))
    yield Stream(ROW_INDEX, number, _message(entries))
    yield Stream(DATA, number, bytes(content))

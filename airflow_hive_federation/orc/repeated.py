"""Encodes columns that repeat each number for many consecutive rows, without pyarrow's encoder.

Four of the six columns of ACID files are of this form: operation, write ids and bucket. pyarrow's encoder
handles each value, and takes as long for these four as for a number and a text of the user's. This module
encodes only their runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_hive_federation.orc.integers import RUN, integer_statistics, steps
from airflow_hive_federation.orc.row_groups import Encoded, row_index
from airflow_hive_federation.orc.streams import DATA, Stream

_TYPES = (pa.int32(), pa.int64())


@dataclass(frozen=True)
class RepeatedNumbers:
    """A column of repeated whole numbers without nulls.

    :param values: the numbers, each once per group of consecutive rows that have it.
    :param starts: the first row of each group, followed by the number of rows.
    """

    values: tuple[int, ...]
    starts: tuple[int, ...]
    kind: ClassVar[int] = 4

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> RepeatedNumbers | None:
        """Return a column in this form; ``None`` if its type does not fit, or its runs are short."""
        runs = column.chunk(0) if pa.types.is_run_end_encoded(column.type) else None
        values = column if runs is None else runs.values
        if values.type not in _TYPES or values.null_count or not len(values):
            return None
        most = len(column) // RUN
        # The beginning of a column suffices to recognize frequent changes.
        if np.count_nonzero(_changes(values.slice(0, 2 * most + 2).to_numpy())) > most:
            return None
        numbers = values.to_numpy()
        is_change = _changes(numbers)
        if np.count_nonzero(is_change) > most:
            return None
        changes = np.flatnonzero(is_change)
        starts = changes + 1 if runs is None else runs.run_ends.to_numpy()[changes]
        return cls(tuple(numbers[[0, *(changes + 1)]].tolist()), (0, *starts.tolist(), len(column)))

    @property
    def rows(self) -> int:
        """Return the number of rows of the column."""
        return self.starts[-1]

    def part(self, start: int, end: int) -> RepeatedNumbers:
        """Return the column of a range of rows."""
        runs = list(self.runs(start, end))
        starts = [at - start for _, at, _ in runs]
        return RepeatedNumbers(tuple(self.values[place] for place, _, _ in runs), (*starts, end - start))

    def runs(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the runs in a range of rows: the index of the number, the first row, and the end."""
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        for place in range(first, len(self.values)):
            if self.starts[place] >= end:
                return
            yield place, max(start, self.starts[place]), min(end, self.starts[place + 1])

    def encoded(self, number: int, stride: int) -> Encoded:
        """Encode streams and statistics; see :class:`.encodable_columns.EncodableColumn`."""
        content = bytearray()
        begins = []
        for place, start, end in self.runs(0, self.rows):
            begins.append(len(content))
            content += steps(self.values[place], 0, end - start)
        entries = []
        for start in range(0, self.rows, stride):
            place = next(self.runs(start, start + 1))[0]
            run, inside = divmod(start - self.starts[place], RUN)
            # All runs of one number have the same length in bytes, whatever their count.
            offset = begins[place] + run * len(steps(self.values[place], 0, 1))
            entries.append(((offset, inside), self._statistics(start, min(start + stride, self.rows))))
        streams = [row_index(number, entries), Stream(DATA, number, bytes(content))]
        return Encoded(streams, self._statistics(0, self.rows))

    def _statistics(self, start: int, end: int) -> bytes:
        lengths = [(self.values[place], to - at) for place, at, to in self.runs(start, end)]
        values = [value for value, _ in lengths]
        total = sum(value * length for value, length in lengths)
        return integer_statistics(min(values), max(values), total, end - start)


def _changes(numbers: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    is_change: npt.NDArray[np.bool_] = numbers[1:] != numbers[:-1]
    return is_change

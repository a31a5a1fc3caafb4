"""Encodes columns of numbers with equal steps, such as row ids and many keys, without pyarrow's encoder."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import numpy as np
import pyarrow as pa

from airflow_hive_federation.orc.integers import RUN, integer_statistics, steps
from airflow_hive_federation.orc.row_groups import Encoded, row_index
from airflow_hive_federation.orc.streams import DATA, Stream

_TYPES = (pa.int32(), pa.int64())


@dataclass(frozen=True)
class ArithmeticProgression:
    """A column of whole numbers with equal steps and without nulls.

    :param first: the first number.
    :param step: the difference from each number to the next.
    :param rows: the number of rows.
    """

    first: int
    step: int
    rows: int
    kind: ClassVar[int] = 4

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> ArithmeticProgression | None:
        """Return a column in this form; ``None`` if its steps differ, or its type does not fit."""
        if column.type not in _TYPES or column.null_count or len(column) < 2:
            return None
        head = column.slice(0, 2).to_pylist()
        made = cls(head[0], head[1] - head[0], len(column))
        # Steps that overflow the type are equal, but do not lead to the last number.
        if column[-1].as_py() != made.number(made.rows - 1):
            return None
        return made if (np.diff(column.to_numpy()) == made.step).all() else None

    def number(self, row: int) -> int:
        """Return the number of a row."""
        return self.first + self.step * row

    def part(self, start: int, end: int) -> ArithmeticProgression:
        """Return the column of a range of rows."""
        return ArithmeticProgression(self.number(start), self.step, end - start)

    def encoded(self, number: int, stride: int) -> Encoded:
        """Encode streams and statistics; see :class:`.encodable_columns.EncodableColumn`."""
        starts = range(0, self.rows, RUN)
        runs = [steps(self.number(at), self.step, min(RUN, self.rows - at)) for at in starts]
        begins = [0, *accumulate(map(len, runs))]
        entries = [
            ((begins[at // RUN], at % RUN), self.part(at, min(at + stride, self.rows)).statistics())
            for at in range(0, self.rows, stride)
        ]
        streams = [row_index(number, entries), Stream(DATA, number, b"".join(runs))]
        return Encoded(streams, self.statistics())

    def statistics(self) -> bytes:
        """Return the column's serialized ``ColumnStatistics``."""
        last = self.number(self.rows - 1)
        low, high = sorted((self.first, last))
        return integer_statistics(low, high, (self.first + last) * self.rows // 2, self.rows)

"""Encodes columns of texts or binary values without pyarrow's encoder and without dictionaries.

Arrow and ORC store texts in the same form: all texts in sequence, and the length of each. Streams and
statistics follow the ORC specification, version 1; :mod:`.integers` describes the form of the lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.model.protobuf import BYTES, VARINT, Field, zigzag
from airflow_hive_federation.orc.integers import runs_of
from airflow_hive_federation.orc.row_groups import Encoded, Presence, column_statistics, row_index
from airflow_hive_federation.orc.streams import DATA, LENGTH, Stream

# Fields of ColumnStatistics.
_STRINGS, _BINARIES = 4, 8
# Longer texts have shortened bounds in Hive's statistics.
_LONG_TEXT_BYTES = 1024
_MAX_BYTES = 2**31 - 1


@dataclass(frozen=True)
class Texts:
    """A column of texts or binary values.

    :param values: the values that are not null.
    :param presence: the rows that have a value.
    """

    values: pa.Array
    presence: Presence
    kind: ClassVar[int] = 7

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Texts | None:
        """Return a column in this form; ``None`` for another type, only nulls, or long values."""
        if column.type not in {pa.string(), pa.binary()} or column.null_count == len(column):
            return None
        if column.nbytes > _MAX_BYTES:
            return None
        present = column.drop_null() if column.null_count else column
        texts = cls(pa.concat_arrays(present.chunks), Presence.of(column))
        is_long = texts.sizes.max() > _LONG_TEXT_BYTES or texts.values.buffers()[2] is None
        return None if is_long else texts

    @cached_property
    def bounds(self) -> npt.NDArray[np.int32]:
        """Return the offset of each text in Arrow's buffer, followed by the end of the last text."""
        start = self.values.offset
        return np.frombuffer(self.values.buffers()[1], np.int32)[start : start + len(self.values) + 1]

    @cached_property
    def sizes(self) -> npt.NDArray[np.uint32]:
        """Return the length of each text in bytes."""
        return np.diff(self.bounds).astype(np.uint32)

    def part(self, start: int, end: int) -> Texts:
        """Return the column of a range of rows."""
        values = self.presence.values(start, end)
        return Texts(self.values[values], self.presence.part(start, end))

    def encoded(self, number: int, stride: int) -> Encoded:
        """Encode streams and statistics; see :class:`.encodable_columns.EncodableColumn`."""
        lengths = runs_of(self.sizes, signed=False)
        entries, extremes = [], []
        for place, values, rows in self.presence.groups(stride):
            offset = int(self.bounds[values.start] - self.bounds[0])
            group_extremes = self._extremes(values)
            places = (*place, offset, *lengths.place(values.start))
            entries.append((places, self._statistics(group_extremes, values, rows)))
            extremes += group_extremes
        column_extremes = [min(extremes), max(extremes)] if extremes else []
        statistics = self._statistics(column_extremes, self._all, self.presence.rows)
        return Encoded([row_index(number, entries), *self._streams(number, lengths.content)], statistics)

    def plain(self) -> Encoded:
        """Encode streams without an index, and statistics."""
        statistics = self._statistics(self._extremes(self._all), self._all, self.presence.rows)
        return Encoded(list(self._streams(0, runs_of(self.sizes, signed=False).content)), statistics)

    def _streams(self, number: int, lengths: bytes) -> Iterator[Stream]:
        yield from self.presence.streams(number)
        content = memoryview(self.values.buffers()[2])
        yield Stream(DATA, number, content[int(self.bounds[0]) : int(self.bounds[-1])])
        yield Stream(LENGTH, number, lengths)

    @property
    def _all(self) -> slice:
        return slice(0, len(self.values))

    def _extremes(self, values: slice) -> list[bytes]:
        """Return the least and the greatest of a range of values."""
        if values.start == values.stop or pa.types.is_binary(self.values.type):
            return []
        extremes = pc.min_max(self.values[values])
        return [extremes[name].as_buffer().to_pybytes() for name in ("min", "max")]

    def _statistics(self, extremes: Sequence[bytes], values: slice, rows: int) -> bytes:
        count = values.stop - values.start
        total = zigzag(int(self.bounds[values.stop] - self.bounds[values.start]))
        if pa.types.is_binary(self.values.type):
            return column_statistics(count, rows, _BINARIES, [(1, VARINT, total)])
        bounds: list[Field] = [(field, BYTES, text) for field, text in enumerate(extremes, 1)]
        return column_statistics(count, rows, _STRINGS, [*bounds, (3, VARINT, total)])

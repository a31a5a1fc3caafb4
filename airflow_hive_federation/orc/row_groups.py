"""Encodes the row index and the presence stream of columns that pyarrow's encoder does not encode.

The numbers of an index follow the ORC Specification v1, "Row Index", for uncompressed streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_hive_federation.model.protobuf import BYTES, VARINT, Field, message_of, varint
from airflow_hive_federation.orc.streams import PRESENT, ROW_INDEX, Stream

_DIRECT_V2 = b"\x08\x02"
# Fields of ColumnStatistics.
_COUNT, _HAS_NULL = 1, 10
# Most literal bytes of a run in the byte run length encoding.
_LITERALS = 128


class Encoded(NamedTuple):
    """An encoded column: its streams, its ``ColumnStatistics``, and its ``ColumnEncoding``."""

    streams: Sequence[Stream]
    statistics: bytes
    encoding: bytes = _DIRECT_V2


def row_index(column: int, entries: Iterable[tuple[Sequence[int], bytes]]) -> Stream:
    """Encode a column's row index.

    :param column: the column's number.
    :param entries: for each row group, its beginning in the column's streams, and its ``ColumnStatistics``.
    """
    made: list[tuple[int, int, int | bytes]] = []
    for places, statistics in entries:
        packed = b"".join(map(varint, places))
        made.append((1, BYTES, message_of([(1, BYTES, packed), (2, BYTES, statistics)])))
    return Stream(ROW_INDEX, column, message_of(made))


def column_statistics(count: int, rows: int, kind: int, details: Sequence[Field]) -> bytes:
    """Encode a ``ColumnStatistics``.

    :param count: number of values that are not null.
    :param kind: number of the field for the details, such as minimum and maximum.
    """
    has_null = int(count < rows)
    return message_of(
        [(_COUNT, VARINT, count), (kind, BYTES, message_of(details)), (_HAS_NULL, VARINT, has_null)]
    )


@dataclass(frozen=True)
class Presence:
    """The rows of a column that have a value.

    :param rows: number of rows of the column.
    :param valid: a flag for each row with a value; ``None`` if all rows have one.
    """

    rows: int
    valid: npt.NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> Presence:
        """Return the presence of a column."""
        if not column.null_count:
            return cls(len(column))
        return cls(len(column), column.is_valid().to_numpy(zero_copy_only=False))

    def part(self, start: int, end: int) -> Presence:
        """Return the presence of a range of rows."""
        valid = None if self.valid is None else self.valid[start:end]
        return Presence(end - start, None if valid is None or valid.all() else valid)

    def values_before(self, row: int) -> int:
        """Return the number of values in the rows before a row."""
        return row if self.valid is None else int(np.count_nonzero(self.valid[:row]))

    def values(self, start: int, end: int) -> slice:
        """Return the range of the values of a range of rows."""
        return slice(self.values_before(start), self.values_before(end))

    def groups(self, stride: int) -> Iterator[tuple[tuple[int, ...], slice, int]]:
        """Yield the place, the range of the values, and the number of rows of each row group.

        :param stride: number of rows of a row group.
        """
        for start in range(0, self.rows, stride):
            end = min(start + stride, self.rows)
            yield self.place(start), self.values(start, end), end - start

    def place(self, row: int) -> tuple[int, ...]:
        """Return a row's place in the stream: the run's offset, bytes to skip in it, and bits of a byte."""
        if self.valid is None:
            return ()
        octet, bits = divmod(row, 8)
        run, inside = divmod(octet, _LITERALS)
        return run * (1 + _LITERALS), inside, bits

    def streams(self, column: int) -> Iterator[Stream]:
        """Yield the presence stream, if the column has nulls: bits, in runs of literal bytes.

        :param column: the column's number.
        """
        if self.valid is None:
            return
        octets = np.packbits(self.valid)
        in_runs = len(octets) // _LITERALS * _LITERALS
        runs = np.empty((in_runs // _LITERALS, 1 + _LITERALS), np.uint8)
        runs[:, 0] = 256 - _LITERALS
        runs[:, 1:] = octets[:in_runs].reshape(-1, _LITERALS)
        rest = octets[in_runs:].tobytes()
        end = bytes([256 - len(rest)]) + rest if rest else b""
        yield Stream(PRESENT, column, runs.tobytes() + end)

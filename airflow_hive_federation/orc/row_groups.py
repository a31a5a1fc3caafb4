"""Row groups of columns that are made here: which rows have values, and where readers may begin to read.

Numbers of an index are those of the ORC Specification v1, "Row Index", for streams that are not compressed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from airflow_hive_federation.orc.protobuf import BYTES, message_of, varint
from airflow_hive_federation.orc.streams import PRESENT, ROW_INDEX, Stream

_DIRECT_V2 = b"\x08\x02"
# Literal bytes of a run of the byte run length encoding, as many as there may be.
_LITERALS = 128


class Encoded(NamedTuple):
    """A column, encoded: its streams, its ``ColumnStatistics``, and its ``ColumnEncoding``."""

    streams: Sequence[Stream]
    statistics: bytes
    encoding: bytes = _DIRECT_V2


def row_index(column: int, entries: Iterable[tuple[Sequence[int], bytes]]) -> Stream:
    """Make a column's index.

    :param column: its number.
    :param entries: of each row group where it begins in the column's streams, and its ``ColumnStatistics``.
    """
    made: list[tuple[int, int, int | bytes]] = []
    for places, statistics in entries:
        packed = b"".join(map(varint, places))
        made.append((1, BYTES, message_of([(1, BYTES, packed), (2, BYTES, statistics)])))
    return Stream(ROW_INDEX, column, message_of(made))


@dataclass(frozen=True)
class Presence:
    """Which rows of a column have a value.

    :param rows: how many rows there are.
    :param valid: whether a row has one; ``None`` if all have.
    """

    rows: int
    valid: np.ndarray[Any, np.dtype[np.bool_]] | None = None

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> Presence:
        """Look at a column."""
        if not column.null_count:
            return cls(len(column))
        return cls(len(column), column.is_valid().to_numpy(zero_copy_only=False))

    def part(self, start: int, end: int) -> Presence:
        """Of some of the rows."""
        valid = None if self.valid is None else self.valid[start:end]
        return Presence(end - start, None if valid is None or valid.all() else valid)

    def values_before(self, row: int) -> int:
        """Count the values of the rows before one."""
        return row if self.valid is None else int(np.count_nonzero(self.valid[:row]))

    def groups(self, stride: int) -> Iterator[tuple[int, int]]:
        """Yield between which rows each row group lies.

        :param stride: rows of a row group.
        """
        return ((start, min(start + stride, self.rows)) for start in range(0, self.rows, stride))

    def place(self, row: int) -> tuple[int, ...]:
        """Where a row is in the stream: byte of a run, bytes to skip in the run, and bits of a byte."""
        if self.valid is None:
            return ()
        octet, bits = divmod(row, 8)
        run, inside = divmod(octet, _LITERALS)
        return run * (1 + _LITERALS), inside, bits

    def streams(self, column: int) -> Iterator[Stream]:
        """Make the stream, if there are nulls: bits, in runs of literal bytes.

        :param column: the column's number.
        """
        if self.valid is None:
            return
        octets = np.packbits(self.valid)
        whole = len(octets) // _LITERALS * _LITERALS
        runs = np.empty((whole // _LITERALS, 1 + _LITERALS), np.uint8)
        runs[:, 0] = 256 - _LITERALS
        runs[:, 1:] = octets[:whole].reshape(-1, _LITERALS)
        rest = octets[whole:].tobytes()
        end = bytes([256 - len(rest)]) + rest if rest else b""
        yield Stream(PRESENT, column, runs.tobytes() + end)

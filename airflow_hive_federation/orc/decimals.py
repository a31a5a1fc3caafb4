"""Encodes columns of decimals of at most 18 digits without pyarrow's encoder.

pyarrow's encoder handles each value alone, and takes four times as long as for a column of numbers. Streams
and statistics follow the ORC specification, version 1. One stream holds the values without their point, the
sign in the last bit, in seven bits per byte; the other holds their scale, which is the same for all values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_hive_federation.model.protobuf import BYTES
from airflow_hive_federation.orc.integers import RUN, exact_sum, steps
from airflow_hive_federation.orc.row_groups import Encoded, Presence, column_statistics, row_index
from airflow_hive_federation.orc.streams import DATA, SECONDARY, Stream

_DECIMALS = 6  # field of ColumnStatistics
_MAX_DIGITS = 18

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Decimals:
    """A column of decimals.

    :param values: the values that are not null, without their point.
    :param presence: the rows that have a value.
    :param scale: number of digits behind the point.
    """

    values: _Numbers
    presence: Presence
    scale: int
    kind: ClassVar[int] = 14

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Decimals | None:
        """Return a column in this form; ``None`` if its type does not fit, or all values are null."""
        kind = column.type
        if not pa.types.is_decimal128(kind) or kind.precision > _MAX_DIGITS or kind.scale < 0:
            return None
        if column.null_count == len(column):
            return None
        values = np.concatenate([_unscaled(chunk) for chunk in column.chunks if len(chunk)])
        return cls(values, Presence.of(column), kind.scale)

    def part(self, start: int, end: int) -> Decimals:
        """Return the column of a range of rows."""
        values = self.values[self.presence.values(start, end)]
        return Decimals(values, self.presence.part(start, end), self.scale)

    def encoded(self, number: int, stride: int) -> Encoded:
        """Encode streams and statistics; see :class:`.encodable_columns.EncodableColumn`."""
        pieces: list[bytes] = []
        entries = []
        offset = 0
        for place, values, rows in self.presence.groups(stride):
            run, inside = divmod(values.start, RUN)
            # All runs of one number have the same length in bytes, whatever their count.
            scales = run * len(steps(self.scale, 0, 1))
            entries.append(((*place, offset, scales, inside), self._statistics(self.values[values], rows)))
            pieces.append(_varints(self.values[values]))
            offset += len(pieces[-1])
        streams = [
            row_index(number, entries),
            *self.presence.streams(number),
            Stream(DATA, number, b"".join(pieces)),
            Stream(SECONDARY, number, steps(self.scale, 0, len(self.values))),
        ]
        return Encoded(streams, self._statistics(self.values, self.presence.rows))

    def _statistics(self, values: _Numbers, rows: int) -> bytes:
        bounds = [(1, int(values.min())), (2, int(values.max()))] if len(values) else []
        details = [(field, BYTES, self._text(value)) for field, value in [*bounds, (3, exact_sum(values))]]
        return column_statistics(len(values), rows, _DECIMALS, details)

    def _text(self, value: int) -> bytes:
        """Return the shortest text of a value as a decimal."""
        integer, fraction = divmod(abs(value), 10**self.scale)
        digits = f"{fraction:0{self.scale}}".rstrip("0")
        return f"{'-' * (value < 0)}{integer}{'.' * bool(digits)}{digits}".encode()


def _unscaled(array: pa.Array) -> _Numbers:
    values = array.drop_null() if array.null_count else array
    _, content = values.buffers()
    # 18 digits need only the lower half of Arrow's 128 bits.
    halves = np.frombuffer(content, np.int64) if len(values) else np.empty(0, np.int64)
    return halves[2 * values.offset : 2 * (values.offset + len(values)) : 2]


def _varints(values: _Numbers) -> bytes:
    """Encode numbers in seven bits per byte, the sign in the last bit, lower bits first."""
    if not len(values):
        return b""
    rest = ((values << 1) ^ (values >> 63)).view(np.uint64)
    width = (int(rest.max()).bit_length() + 6) // 7 or 1
    octets = np.empty((width, len(values)), np.uint8)
    is_there = np.empty((width, len(values)), np.bool_)
    for place in range(width):
        octets[place] = rest & 0x7F
        is_there[place] = rest != 0
        rest >>= 7
    is_there[0] = True
    # The highest bit of every byte but the last marks that another byte follows.
    octets[:-1] |= is_there[1:].view(np.uint8) << 7
    return octets.T[is_there.T].tobytes()

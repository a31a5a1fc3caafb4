"""Whole numbers in ORC files: runs of version 2 of the run length encoding, and statistics.

Of the encoding's forms two suffice here: DIRECT in whole bytes, and DELTA where all steps are equal; each run
has 512 values, as many as there may be (ORC Specification v1, "Integer Run Length Encoding, version 2").
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from airflow_hive_federation.acid.orc.tail import _message, _varint_bytes, _zigzag

#: Values of a run.
RUN = 512

_VARINT, _BYTES = 0, 2
# Fields of ColumnStatistics.
_COUNT, _INTEGERS, _HAS_NULL = 1, 2, 10
_DIRECT_RUN, _DELTA_RUN = 0x40, 0xC0
# The number that stands for a width of so many bytes, less one.
_WIDTHS = (7, 15, 23, 27, 28, 29, 30, 31)
_MAX_SUM = 2**63 - 1


@lru_cache
def steps(first: int, step: int, count: int, *, signed: bool = True) -> bytes:
    """Encode numbers with equal steps between them."""
    fold = _zigzag if signed else int
    end = _varint_bytes(_zigzag(step))
    if not step:
        whole, rest = divmod(count, RUN)
        value = _varint_bytes(fold(first)) + end
        return (_header(_DELTA_RUN, RUN) + value) * whole + (
            _header(_DELTA_RUN, rest) + value if rest else b""
        )
    return b"".join(
        _header(_DELTA_RUN, min(RUN, count - at)) + _varint_bytes(fold(first + step * at)) + end
        for at in range(0, count, RUN)
    )


def direct(values: np.ndarray[Any, np.dtype[Any]], greatest: int) -> bytes:
    """Encode unsigned numbers as they are, each in as many bytes as the greatest takes."""
    size, width = values.itemsize, (greatest.bit_length() + 7) // 8
    octets = values.astype(f">u{size}").view(np.uint8).reshape(-1, size)[:, size - width :]
    whole = len(values) // RUN
    kind = _DIRECT_RUN | _WIDTHS[width - 1] << 1
    runs = np.empty((whole, 2 + RUN * width), np.uint8)
    runs[:, :2] = list(_header(kind, RUN))
    runs[:, 2:].reshape(whole, RUN, width)[:] = octets[: whole * RUN].reshape(whole, RUN, width)
    rest = len(values) - whole * RUN
    end = _header(kind, rest) + octets[whole * RUN :].tobytes() if rest else b""
    return runs.tobytes() + end


@lru_cache
def integer_statistics(low: int, high: int, total: int, count: int) -> bytes:
    """Make the ``ColumnStatistics`` of numbers of which none is null; a sum that may not fit is left out."""
    bounds: list[tuple[int, int, int | bytes]] = [(1, _VARINT, _zigzag(low)), (2, _VARINT, _zigzag(high))]
    if ~_MAX_SUM <= total <= _MAX_SUM:
        bounds.append((3, _VARINT, _zigzag(total)))
    told = (_INTEGERS, _BYTES, _message(bounds))
    return _message([(_COUNT, _VARINT, count), told, (_HAS_NULL, _VARINT, 0)])


def _header(kind: int, count: int) -> bytes:
    return bytes([kind | (count - 1) >> 8, (count - 1) & 0xFF])

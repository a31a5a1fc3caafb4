"""Decodes the unsigned whole numbers of ORC files.

Source: ORC Specification v1, "Integer Run Length Encoding, version 2".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_hive_federation.model.protobuf import read_varint, unzigzag

_Numbers = npt.NDArray[np.int64]
# Widths in bits, by their encoded number.
_WIDTHS = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)
_REPEAT, _DIRECT, _PATCHED = 0, 1, 2


def unsigned_numbers(content: bytes) -> _Numbers:
    """Decode a stream of unsigned numbers.

    :param content: decompressed content of the stream.
    :raises ValueError: if the last run is incomplete.
    """
    runs: list[_Numbers] = []
    at = 0
    try:
        while at < len(content):
            run, at = _run(content, at)
            runs.append(run)
    except IndexError as error:
        raise ValueError("the last run of numbers is not whole") from error
    return np.concatenate(runs) if runs else np.empty(0, np.int64)


def _run(content: bytes, at: int) -> tuple[_Numbers, int]:
    kind, code = content[at] >> 6, content[at] >> 1 & 0x1F
    if kind == _REPEAT:
        size = (content[at] >> 3 & 7) + 1
        value = int.from_bytes(_taken(content, at + 1, size), "big")
        return np.full((content[at] & 7) + 3, value, np.int64), at + 1 + size
    length = ((content[at] & 1) << 8 | content[at + 1]) + 1
    if kind == _DIRECT:
        return _unpacked(content, at + 2, length, _WIDTHS[code])
    if kind == _PATCHED:
        return _patched(content, at, length, _WIDTHS[code])
    return _deltas(content, at + 2, length, _WIDTHS[code] if code else 0)


def _deltas(content: bytes, at: int, length: int, width: int) -> tuple[_Numbers, int]:
    first, at = read_varint(content, at)
    folded, at = read_varint(content, at)
    step = unzigzag(folded)
    steps = np.full(length, step, np.int64)
    steps[0] = first
    if width and length > 2:
        sizes, at = _unpacked(content, at, length - 2, width)
        steps[2:] = -sizes if step < 0 else sizes
    return np.cumsum(steps), at


def _patched(content: bytes, at: int, length: int, width: int) -> tuple[_Numbers, int]:
    base_size, patch_width = (content[at + 2] >> 5) + 1, _WIDTHS[content[at + 2] & 0x1F]
    gap_width, patches = (content[at + 3] >> 5) + 1, content[at + 3] & 0x1F
    base = int.from_bytes(_taken(content, at + 4, base_size), "big")
    # The first bit of the base is its sign.
    sign = 1 << (8 * base_size - 1)
    base = -(base ^ sign) if base & sign else base
    values, at = _unpacked(content, at + 4 + base_size, length, width)
    entry_width = next(usable for usable in _WIDTHS if usable >= gap_width + patch_width)
    entries, at = _unpacked(content, at, patches, entry_width)
    place = 0
    for entry in entries.tolist():
        place += entry >> patch_width
        # A gap that is too long for one entry takes further entries, which patch nothing.
        values[place] |= (entry & (1 << patch_width) - 1) << width
    return values + base, at


def _unpacked(content: bytes, at: int, count: int, width: int) -> tuple[_Numbers, int]:
    size = (count * width + 7) // 8
    bits = np.unpackbits(np.frombuffer(_taken(content, at, size), np.uint8), count=count * width)
    places = np.left_shift(np.uint64(1), np.arange(width - 1, -1, -1, dtype=np.uint64))
    numbers = (bits.reshape(count, width) * places).sum(axis=1, dtype=np.uint64)
    return numbers.astype(np.int64), at + size


def _taken(content: bytes, at: int, size: int) -> bytes:
    if at + size > len(content):
        raise IndexError(at + size)
    return content[at : at + size]

"""Encodes whole numbers for ORC files in version 2 of the run length encoding, and their statistics.

The module uses two forms of the encoding: DELTA if the numbers only rise or only fall, and DIRECT otherwise.
Each run has 512 values, the maximum. Widths are those that pyarrow's and Hive's writers choose for speed
(``SerializationUtils.getClosestAlignedFixedBits``; ORC Specification v1, "Integer Run Length Encoding,
version 2").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from airflow_hive_federation.model.protobuf import BYTES, VARINT, message_of, varint, zigzag

#: Number of values of a run.
RUN = 512

Numbers = npt.NDArray[np.integer]
# Fields of ColumnStatistics.
_COUNT, _INTEGERS, _HAS_NULL = 1, 2, 10
_DIRECT_RUN, _DELTA_RUN = 0x40, 0xC0
# The encoded number of each width in bits.
_WIDTHS = {1: 0, 2: 1, 4: 3, 8: 7, 16: 15, 24: 23, 32: 27, 40: 28, 48: 29, 56: 30, 64: 31}
# The stored width of numbers by their length in bits.
_ALIGNED = tuple(next(width for width in _WIDTHS if width >= bits) for bits in range(65))
# The number of runs in a sample of a column's values.
_SAMPLE = 8
# The number of values of a run that count as most of them (95 %), whose width is compared with the maximum.
_MOST = RUN * 95 // 100
_MAX_SUM = 2**63 - 1


@dataclass(frozen=True)
class Runs:
    """Encoded runs of numbers.

    :param content: the bytes of all runs.
    :param begins: the offset of each run, followed by the end of the last run.
    """

    content: bytes
    begins: Sequence[int]

    def place(self, value: int) -> tuple[int, int]:
        """Return the place of a number: the offset of its run, and its position in the run."""
        run, inside = divmod(value, RUN)
        return self.begins[run], inside


def exact_sum(numbers: Numbers) -> int:
    """Return the sum of numbers without an overflow."""
    if numbers.itemsize < 8:
        return int(numbers.sum(dtype=np.int64))
    # The sum of halves cannot overflow.
    return (int((numbers >> 32).sum()) << 32) + int((numbers & 0xFFFFFFFF).sum())


def runs_of(numbers: Numbers, *, signed: bool = True) -> Runs:
    """Encode whole numbers of at most 64 bits, or 63 bits if they are unsigned."""
    if len(numbers) and numbers.min() == numbers.max():
        content, run = (steps(int(numbers[0]), 0, count, signed=signed) for count in (len(numbers), 1))
        return Runs(content, [*range(0, len(content), len(run)), len(content)])
    wide = numbers.astype(np.int64, copy=False)
    in_runs = len(wide) // RUN * RUN
    made = [*_runs(wide[:in_runs].reshape(-1, RUN), signed), *_runs(wide[in_runs:].reshape(1, -1), signed)]
    return Runs(b"".join(made), [0, *accumulate(map(len, made))])


def has_shorter_form(values: Numbers) -> bool:
    """Return whether pyarrow's encoder probably makes shorter runs, according to a sample.

    Its runs are shorter if numbers repeat, or if a few numbers are longer than most. The result is also true
    for fewer values than a run has.
    """
    full_runs = len(values) // RUN
    if not full_runs:
        return True
    sample = values[: full_runs * RUN].reshape(full_runs, RUN)[:: -(-full_runs // _SAMPLE)].astype(np.int64)
    changes = np.diff(sample, axis=1)
    repeats = int(np.count_nonzero((changes[:, 1:] | changes[:, :-1]) == 0))
    sizes = np.where(sample < 0, ~sample, sample)
    sizes.partition(_MOST, axis=1)
    lengths = [
        sum(_ALIGNED[size.bit_length() + 1] for size in longest.tolist())
        for longest in (sizes[:, _MOST], sizes.max(axis=1))
    ]
    return repeats * 8 > changes.size or lengths[0] * 10 < lengths[1] * 9


def _runs(numbers: Numbers, signed: bool) -> list[bytes]:
    """Encode runs of equal length.

    :param numbers: a matrix with one run per row.
    """
    if not numbers.size:
        return []
    changes = np.diff(numbers, axis=1) if numbers.shape[1] > 1 else np.zeros_like(numbers)
    forms: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    extremes = [
        extreme.tolist() for values in (numbers, changes) for extreme in (values.min(1), values.max(1))
    ]
    for run, run_extremes in enumerate(zip(*extremes, changes[:, 0].tolist(), strict=True)):
        forms[_form(*run_extremes, signed=signed)].append(run)
    made = [b""] * len(numbers)
    for (kind, width), places in forms.items():
        head = _header(kind | _WIDTHS.get(width, 0) << 1, numbers.shape[1])
        if kind == _DELTA_RUN:
            starts = [head + values for values in _starts(numbers[places, 0], changes[places, 0], signed)]
            packed = _packed(np.abs(changes[places, 1:]), width)
        else:
            starts = [head] * len(places)
            packed = _packed(_folded(numbers[places]) if signed else numbers[places], width)
        for run, start, content in zip(places, starts, packed, strict=True):
            made[run] = start + content.tobytes()
    return made


def _starts(firsts: Numbers, changes: Numbers, signed: bool) -> Iterator[bytes]:
    """Yield the beginning of each DELTA run: the first number, and the change to the second."""
    fold = zigzag if signed else int
    for first, change in zip(firsts.tolist(), changes.tolist(), strict=True):
        yield varint(fold(first)) + varint(zigzag(change))


def _form(low: int, high: int, least: int, greatest: int, first: int, *, signed: bool) -> tuple[int, int]:
    """Choose the form of a run, and its width in bits.

    :param low: the least number.
    :param high: the greatest number.
    :param least: the least change from number to number.
    :param greatest: the greatest change.
    :param first: the first change, whose sign applies to all changes.
    """
    width = _ALIGNED[max(high, ~low).bit_length() + 1 if signed else high.bit_length()]
    # Changes between numbers that are further apart have overflowed.
    if high - low < 2**63 and (least >= 0 or (greatest <= 0 and first < 0)):
        change_width = max(2, _ALIGNED[max(greatest, -least).bit_length()]) if least < greatest else 0
        if change_width < width:
            return _DELTA_RUN, change_width
    return _DIRECT_RUN, width


def _folded(numbers: Numbers) -> Numbers:
    """Move the sign into the last bit."""
    doubled = numbers << 1
    return doubled if numbers.min() >= 0 else doubled ^ (numbers >> 63)


def _packed(numbers: Numbers, width: int) -> Numbers:
    """Pack the numbers of each row, the first number in the highest bits.

    :param numbers: numbers of 64 bits, of which the lowest ``width`` bits count.
    """
    rows, count = numbers.shape
    if width >= 8:
        size = width // 8
        octets = np.ascontiguousarray(numbers, "<i8").view(np.uint8).reshape(rows, count, 8)
        out = np.empty((rows, count, size), np.uint8)
        for place in range(size):
            out[:, :, place] = octets[:, :, size - 1 - place]
        return out.reshape(rows, -1)
    if not width:
        return np.empty((rows, 0), np.uint8)
    in_octet = 8 // width
    parts = np.zeros((rows, -(-count // in_octet), in_octet), np.uint8)
    parts.reshape(rows, -1)[:, :count] = numbers
    places = np.arange(8 - width, -1, -width, dtype=np.uint8)
    packed: Numbers = np.bitwise_or.reduce(parts << places, axis=2)
    return packed


@lru_cache
def steps(first: int, step: int, count: int, *, signed: bool = True) -> bytes:
    """Encode ``count`` numbers with equal steps between them."""
    fold = zigzag if signed else int
    end = varint(zigzag(step))
    if not step:
        full_runs, rest = divmod(count, RUN)
        value = varint(fold(first)) + end
        return (_header(_DELTA_RUN, RUN) + value) * full_runs + (
            _header(_DELTA_RUN, rest) + value if rest else b""
        )
    return b"".join(
        _header(_DELTA_RUN, min(RUN, count - at)) + varint(fold(first + step * at)) + end
        for at in range(0, count, RUN)
    )


@lru_cache
def integer_statistics(low: int, high: int, total: int, count: int) -> bytes:
    """Return the ``ColumnStatistics`` of numbers without nulls; a sum that may not fit is left out."""
    bounds: list[tuple[int, int, int | bytes]] = [(1, VARINT, zigzag(low)), (2, VARINT, zigzag(high))]
    if ~_MAX_SUM <= total <= _MAX_SUM:
        bounds.append((3, VARINT, zigzag(total)))
    details = (_INTEGERS, BYTES, message_of(bounds))
    return message_of([(_COUNT, VARINT, count), details, (_HAS_NULL, VARINT, 0)])


def _header(kind: int, count: int) -> bytes:
    return bytes([kind | (count - 1) >> 8, (count - 1) & 0xFF])

"""Merges the column statistics of several stripes into those of an ORC file.

Messages are ``ColumnStatistics`` of ``orc_proto.proto``. Values that cannot be merged safely (a bound that
one part lacks, a sum that overflowed) are left out; to readers they are then unknown.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation, localcontext
from typing import TypeVar, cast

from airflow_hive_federation.model.protobuf import (
    BYTES,
    FIXED64,
    VARINT,
    Field,
    all_of,
    fields_of,
    message_of,
    number_of,
    optional_number,
    unzigzag,
    varint,
    zigzag,
)

_COUNT, _HAS_NULL, _BYTES_ON_DISK = 1, 10, 11
_MAX_SUM = 2**63 - 1
# Digits of Hive's decimals, and digits that suffice for the sum of any number of them.
_MAX_DIGITS, _EXACT_DIGITS = 38, 80


def merged_statistics(parts: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Merge the statistics of several parts of a file.

    :param parts: for each part, one serialized ``ColumnStatistics`` per column.
    """
    return [_merged([fields_of(message) for message in column]) for column in zip(*parts, strict=True)]


def _merged(columns: Sequence[Sequence[Field]]) -> bytes:
    out: list[Field] = [(_COUNT, VARINT, sum(number_of(part, _COUNT) for part in columns))]
    # A part without values has no bounds and sums to merge.
    with_values = [part for part in columns if number_of(part, _COUNT)] or columns
    for number, merge in _KINDS.items():
        details = [fields_of(message) for part in with_values for message in all_of(part, number)]
        if details and len(details) == len(with_values):
            out.append((number, BYTES, message_of(merge(details))))
    out.append((_HAS_NULL, VARINT, int(any(number_of(part, _HAS_NULL, 1) for part in columns))))
    on_disk = sum(number_of(part, _BYTES_ON_DISK) for part in columns)
    if on_disk:
        out.append((_BYTES_ON_DISK, VARINT, on_disk))
    return message_of(out)


_Parts = Sequence[Sequence[Field]]
_Value = TypeVar("_Value", int, bytes)
_Bound = TypeVar("_Bound", int, float, bytes, Decimal)


def _integers(parts: _Parts) -> list[Field]:
    return [*_bounds(parts, 1, 2, unzigzag, VARINT), *_sum(parts, 3)]


def _doubles(parts: _Parts) -> list[Field]:
    sums = [_float(value) for part in parts for value in _values(part, 3, bytes)]
    out = list(_bounds(parts, 1, 2, _float, FIXED64))
    if len(sums) == len(parts):
        out.append(
            (3, FIXED64, struct.pack("<d", math.fsum(sums) if all(map(math.isfinite, sums)) else sum(sums)))
        )
    return out


def _strings(parts: _Parts) -> list[Field]:
    # Long strings have lower and upper bounds instead of a minimum and maximum; the merge then has no bounds.
    cut = any(_values(part, field, bytes) for part in parts for field in (4, 5))
    bounds = [] if cut else _bounds(parts, 1, 2, _text, BYTES)
    return [*bounds, *_sum(parts, 3)]


def _text(value: bytes) -> bytes:
    return value


def _buckets(parts: _Parts) -> list[Field]:
    # The statistics of a boolean column hold the count of true, packed.
    total = 0
    for part in parts:
        total += sum(_values(part, 1, int)) + sum(map(_varint_of, _values(part, 1, bytes)))
    return [(1, BYTES, varint(total))]


def _decimals(parts: _Parts) -> list[Field]:
    out = list(_bounds(parts, 1, 2, _decimal, BYTES))
    sums = [_values(part, 3, bytes) for part in parts]
    if all(sums):
        with localcontext(prec=_EXACT_DIGITS):
            total = sum((_decimal(values[0]) for values in sums), Decimal(0))
        if len(total.as_tuple().digits) <= _MAX_DIGITS:
            out.append((3, BYTES, f"{total:f}".encode()))
    return out


def _dates(parts: _Parts) -> list[Field]:
    return _bounds(parts, 1, 2, unzigzag, VARINT)


def _binaries(parts: _Parts) -> list[Field]:
    return _sum(parts, 1)


def _timestamps(parts: _Parts) -> list[Field]:
    # Fields 1 and 2 are milliseconds of the wall clock, 3 and 4 milliseconds in UTC, and 5 and 6 the
    # nanoseconds below them plus one.
    if not all(_values(part, field, int) for part in parts for field in (3, 4)):
        return []
    low = min(parts, key=lambda part: (unzigzag(_values(part, 3, int)[0]), number_of(part, 5, 1)))
    high = max(parts, key=lambda part: (unzigzag(_values(part, 4, int)[0]), number_of(part, 6, 1_000_000)))
    kept = [field for field in low if field[0] in {1, 3, 5}]
    return sorted([*kept, *(field for field in high if field[0] in {2, 4, 6})], key=lambda field: field[0])


def _collections(parts: _Parts) -> list[Field]:
    if not all(_values(part, 1, int) for part in parts):
        return []
    return [
        (1, VARINT, min(number_of(part, 1) for part in parts)),
        (2, VARINT, max(number_of(part, 2) for part in parts)),
        (3, VARINT, sum(number_of(part, 3) for part in parts)),
    ]


_KINDS: dict[int, Callable[[_Parts], list[Field]]] = {
    2: _integers,
    3: _doubles,
    4: _strings,
    5: _buckets,
    6: _decimals,
    7: _dates,
    8: _binaries,
    9: _timestamps,
    12: _collections,
}


def _bounds(parts: _Parts, low: int, high: int, key: Callable[[_Value], _Bound], wire: int) -> list[Field]:
    # A damaged file may have a number in the place of a text; the wire type decides the type of the value.
    def values(at: int) -> list[_Value]:
        return [
            cast("_Value", value)
            for part in parts
            for field, kind, value in part
            if (field, kind) == (at, wire)
        ]

    lows: list[_Value] = values(low)
    highs: list[_Value] = values(high)
    if not len(lows) == len(highs) == len(parts) or not _comparable([key(value) for value in lows + highs]):
        return []
    return [(low, wire, min(lows, key=key)), (high, wire, max(highs, key=key))]


def _sum(parts: _Parts, number: int) -> list[Field]:
    sums = [optional_number(part, number) for part in parts]
    # A part without values has no sum, and needs none; a part with values has none if it overflowed.
    if any(value is None for value, part in zip(sums, parts, strict=True) if part):
        return []
    total = sum(unzigzag(value) for value in sums if value is not None)
    return [(number, VARINT, zigzag(total))] if abs(total) <= _MAX_SUM else []


def _values(part: Sequence[Field], number: int, kind: type[_Value]) -> list[_Value]:
    return [value for field, _, value in part if field == number and isinstance(value, kind)]


def _comparable(values: Sequence[object]) -> bool:
    return not any(isinstance(value, float) and math.isnan(value) for value in values)


def _float(value: bytes) -> float:
    return float(struct.unpack("<d", value)[0])


def _decimal(value: bytes) -> Decimal:
    try:
        return Decimal(value.decode())
    except InvalidOperation:
        return Decimal("NaN")


def _varint_of(value: bytes) -> int:
    number = shift = 0
    for byte in value:
        number |= (byte & 0x7F) << shift
        if not byte & 0x80:
            break
        shift += 7
    return number

"""Column statistics of ORC files, merged: several stripes' into one file's.

Messages are ``ColumnStatistics`` of ``orc_proto.proto``. What cannot be merged safely (a bound that one part
lacks, a sum that overflowed) is left out, which readers take for unknown.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any

from airflow_hive_federation.orc.protobuf import (
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
    zigzag,
)

_COUNT, _HAS_NULL, _BYTES_ON_DISK = 1, 10, 11
_MAX_SUM = 2**63 - 1
# Of Hive's decimals, and enough for a sum of as many as there may be.
_MAX_DIGITS, _EXACT_DIGITS = 38, 80


def merged_statistics(parts: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Merge the statistics of several parts of a file.

    :param parts: for each part, a serialized ``ColumnStatistics`` a column.
    """
    return [_merged([fields_of(one) for one in column]) for column in zip(*parts, strict=True)]


def _merged(columns: Sequence[Sequence[Field]]) -> bytes:
    out: list[Field] = [(_COUNT, VARINT, sum(number_of(one, _COUNT) for one in columns))]
    # A part without values says nothing of those of the others.
    telling = [one for one in columns if number_of(one, _COUNT)] or columns
    for number, merge in _KINDS.items():
        found = [fields_of(message) for one in telling for message in all_of(one, number)]
        if found and len(found) == len(telling):
            out.append((number, BYTES, message_of(merge(found))))
    out.append((_HAS_NULL, VARINT, int(any(number_of(one, _HAS_NULL, 1) for one in columns))))
    on_disk = sum(number_of(one, _BYTES_ON_DISK) for one in columns)
    if on_disk:
        out.append((_BYTES_ON_DISK, VARINT, on_disk))
    return message_of(out)


_Parts = Sequence[Sequence[Field]]


def _integers(parts: _Parts) -> list[Field]:
    return [*_bounds(parts, 1, 2, _signed, VARINT), *_sum(parts, 3)]


def _doubles(parts: _Parts) -> list[Field]:
    sums = [_float(value) for part in parts for value in _values(part, 3)]
    out = list(_bounds(parts, 1, 2, _float, FIXED64))
    if len(sums) == len(parts):
        out.append((3, FIXED64, struct.pack("<d", math.fsum(sums) if _finite(sums) else sum(sums))))
    return out


def _strings(parts: _Parts) -> list[Field]:
    # Long strings have lower and upper bounds instead of values; then no bounds are known here.
    cut = any(_values(part, 4) or _values(part, 5) for part in parts)
    bounds = [] if cut else _bounds(parts, 1, 2, _same, BYTES)
    return [*bounds, *_sum(parts, 3)]


def _buckets(parts: _Parts) -> list[Field]:
    # Of a boolean column: how often it is true, packed.
    total = 0
    for part in parts:
        for value in _values(part, 1):
            total += value if isinstance(value, int) else _varint_of(value)
    return [(1, BYTES, _varint_text(total))]


def _decimals(parts: _Parts) -> list[Field]:
    out = list(_bounds(parts, 1, 2, _decimal, BYTES))
    sums = [_values(part, 3) for part in parts]
    if all(sums):
        with localcontext(prec=_EXACT_DIGITS):
            total = sum((_decimal(values[0]) for values in sums), Decimal(0))
        if len(total.as_tuple().digits) <= _MAX_DIGITS:
            out.append((3, BYTES, f"{total:f}".encode()))
    return out


def _dates(parts: _Parts) -> list[Field]:
    return _bounds(parts, 1, 2, _signed, VARINT)


def _binaries(parts: _Parts) -> list[Field]:
    return _sum(parts, 1)


def _timestamps(parts: _Parts) -> list[Field]:
    # Milliseconds of the wall clock (1, 2) and in UTC (3, 4), and the nanoseconds below them (5, 6) plus one.
    if not all(_values(part, 3) and _values(part, 4) for part in parts):
        return []
    low = min(parts, key=lambda part: (_signed(_values(part, 3)[0]), number_of(part, 5, 1)))
    high = max(parts, key=lambda part: (_signed(_values(part, 4)[0]), number_of(part, 6, 1_000_000)))
    kept = [field for field in low if field[0] in {1, 3, 5}]
    return sorted([*kept, *(field for field in high if field[0] in {2, 4, 6})], key=lambda field: field[0])


def _collections(parts: _Parts) -> list[Field]:
    if not all(_values(part, 1) for part in parts):
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


def _bounds(parts: _Parts, low: int, high: int, key: Callable[[Any], Any], wire: int) -> list[Field]:
    lows = [value for part in parts for value in _values(part, low)]
    highs = [value for part in parts for value in _values(part, high)]
    if not len(lows) == len(highs) == len(parts) or not _comparable(
        [key(value) for value in (*lows, *highs)]
    ):
        return []
    return [(low, wire, min(lows, key=key)), (high, wire, max(highs, key=key))]


def _sum(parts: _Parts, number: int) -> list[Field]:
    sums = [optional_number(part, number) for part in parts]
    # A part without values has no sum, and needs none; one with values and no sum has overflowed.
    if any(value is None for value, part in zip(sums, parts, strict=True) if part):
        return []
    total = sum(unzigzag(value) for value in sums if value is not None)
    return [(number, VARINT, zigzag(total))] if abs(total) <= _MAX_SUM else []


def _values(part: Sequence[Field], number: int) -> list[Any]:
    return [value for field, _, value in part if field == number]


def _comparable(values: Sequence[Any]) -> bool:
    return not any(isinstance(value, float) and math.isnan(value) for value in values)


def _finite(values: Sequence[float]) -> bool:
    return all(math.isfinite(value) for value in values)


def _signed(value: int) -> int:
    return unzigzag(value)


def _float(value: bytes) -> float:
    return float(struct.unpack("<d", value)[0])


def _same(value: bytes) -> bytes:
    return value


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


def _varint_text(value: int) -> bytes:
    # A message of one field without its key.
    return message_of([(1, VARINT, value)])[1:]

"""Statistics of a file claim nothing that a part of it does not know."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from airflow_hive_federation.model.protobuf import (
    BYTES,
    FIXED64,
    VARINT,
    all_of,
    fields_of,
    message_of,
    number_of,
    zigzag,
)
from airflow_hive_federation.orc.column_statistics import merged_statistics

_DOUBLES, _STRINGS, _DECIMALS, _TIMESTAMPS = 3, 4, 6, 9


def column(count: int, kind: int, *fields: tuple[int, int, Any]) -> bytes:
    """A ``ColumnStatistics``; of no kind without fields."""
    typed = [(kind, BYTES, message_of(list(fields)))] if fields else []
    return message_of([(1, VARINT, count), *typed, (10, VARINT, 0)])


def merged(kind: int, *parts: bytes) -> list[Any] | None:
    """Return the fields of a kind in the merged statistics."""
    (statistics,) = merged_statistics([[part] for part in parts])
    assert number_of(fields_of(statistics), 1) == sum(number_of(fields_of(part), 1) for part in parts)
    fields = all_of(fields_of(statistics), kind)
    return fields_of(fields[0]) if fields else None


def doubles(low: float | None, high: float | None, total: float) -> list[tuple[int, int, bytes]]:
    ends = [(1, low), (2, high), (3, total)]
    return [(number, FIXED64, struct.pack("<d", value)) for number, value in ends if value is not None]


def timestamps(low: int, high: int) -> list[tuple[int, int, int]]:
    ends = enumerate((low, high, low, high), 1)
    return [(number, VARINT, zigzag(value)) for number, value in ends]


def texts(low: bytes | None, high: bytes | None) -> list[tuple[int, int, Any]]:
    ends: list[tuple[int, int, Any]] = [(1, BYTES, low), (2, BYTES, high), (3, VARINT, zigzag(4))]
    return [value for value in ends if value[2] is not None]


def test_a_part_without_a_kind_leaves_it_out() -> None:
    known, unknown = column(1000, _TIMESTAMPS, *timestamps(5, 9)), column(3, _TIMESTAMPS)
    assert merged(_TIMESTAMPS, known, known) == timestamps(5, 9)
    assert merged(_TIMESTAMPS, unknown, known) is None
    # One without values knows all that there is to know.
    assert merged(_TIMESTAMPS, column(0, _TIMESTAMPS), known) == timestamps(5, 9)


@pytest.mark.parametrize("order", [1, -1])
def test_a_part_without_bounds_leaves_them_out(order: int) -> None:
    nan = float("nan")
    first, other = column(2, _DOUBLES, *doubles(None, None, nan)), column(2, _DOUBLES, *doubles(1, 2, 3))
    assert [field[0] for field in merged(_DOUBLES, *[first, other][::order]) or ()] == [3]
    first, other = column(2, _STRINGS, *texts(None, None)), column(2, _STRINGS, *texts(b"a", b"b"))
    assert [field[0] for field in merged(_STRINGS, *[first, other][::order]) or ()] == [3]
    first, other = column(2, _STRINGS, *texts(b"a", None)), column(2, _STRINGS, *texts(b"a", b"b"))
    assert [field[0] for field in merged(_STRINGS, *[first, other][::order]) or ()] == [3]


def test_bounds_of_another_wire_type_are_left_out() -> None:
    number: list[tuple[int, int, Any]] = [(1, VARINT, 2**62), (2, VARINT, 2**62), (3, VARINT, zigzag(4))]
    damaged = column(2, _STRINGS, *number)
    assert [field[0] for field in merged(_STRINGS, damaged, damaged) or ()] == [3]
    assert [
        field[0] for field in merged(_STRINGS, damaged, column(2, _STRINGS, *texts(b"a", b"b"))) or ()
    ] == [3]


def test_also_step_by_step() -> None:
    nan = column(2, _DOUBLES, *doubles(float("nan"), float("nan"), float("nan")))
    known = column(2, _DOUBLES, *doubles(7, 9, 16))
    (first,) = merged_statistics([[nan], [known]])
    assert [field[0] for field in merged(_DOUBLES, first, known) or ()] == [3]


def test_sums_of_decimals_are_exact_or_left_out() -> None:
    def decimals(text: bytes) -> bytes:
        return column(1, _DECIMALS, *((number, BYTES, text) for number in (1, 2, 3)))

    value = b"1234567890123456789012345678901234567"
    assert (3, BYTES, b"2469135780246913578024691357802469134") in (
        merged(_DECIMALS, decimals(value), decimals(value)) or ()
    )
    greatest = b"9" * 38
    assert [field[0] for field in merged(_DECIMALS, decimals(greatest), decimals(greatest)) or ()] == [1, 2]

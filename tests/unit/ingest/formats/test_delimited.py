"""Delimited records by the rules of LazySimpleSerDe."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

from airflow_hive_federation.ingest.errors import InvalidColumn, InvalidConnection
from airflow_hive_federation.ingest.formats.delimited import StrictDelimitedInputWriter
from airflow_hive_federation.ingest.formats.writers import Parsed
from airflow_hive_federation.model.types import Column

ALERTS = [Column.of("id", "int"), Column.of("msg", "string")]


def writer(*columns: Column, malformed: Any = "raise", delimiter: str = ",") -> StrictDelimitedInputWriter:
    made = (
        StrictDelimitedInputWriter.new_builder()
        .with_field_delimiter(delimiter)
        .with_malformed(malformed)
        .build()
    )
    made.bind(columns or ALERTS)
    return made


def rows(parsed: Parsed) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in parsed.rows.to_pylist()]


def test_the_specs_records() -> None:
    parsed = writer().parse([b"1,val1", b"2,val2"])
    assert rows(parsed) == [(1, "val1"), (2, "val2")]
    assert not parsed.bad


def test_null_and_empty() -> None:
    parsed = writer().parse([rb"\N,\N", b",", b"3,"])
    assert rows(parsed) == [(None, None), (None, ""), (3, "")]


@pytest.mark.parametrize(
    ("record", "column", "reason"),
    [
        (b"1", "", "it has 1 field, but there are 2 columns"),
        (b'1,"a,b"', "", "it has 3 fields, but there are 2 columns"),
        (b"x,a", "id", "'x' is not a whole number"),
        (b"2147483648,a", "id", "does not fit into 32 bits"),
        (b"1,\xff\xfe", "msg", "byte 2 is not UTF-8"),
        (b"", "", "it has 1 field"),
    ],
)
def test_a_bad_record_is_reported_with_its_place_and_column(record: bytes, column: str, reason: str) -> None:
    parsed = writer().parse([b"1,a", record, b"3,c"])
    assert rows(parsed) == [(1, "a"), (3, "c")]
    (bad,) = parsed.bad
    assert (bad.index, bad.column) == (1, column)
    assert reason in bad.reason


def test_as_hives_serde_malformed_values_become_null() -> None:
    parsed = writer(malformed="null").parse([b"x,a", b"1", b"2,b,c", b"3000000000,d"])
    assert rows(parsed) == [(None, "a"), (1, None), (2, "b"), (None, "d")]
    assert not parsed.bad


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("tinyint", "-128", -128),
        ("smallint", "+7", 7),
        ("int", " 12 ", None),
        ("int", "3.99", 3),
        ("int", "0x1F", None),
        ("bigint", "-9223372036854775808", -(2**63)),
        ("boolean", "TRUE", True),
        ("boolean", "f", None),
        ("double", "1e3", 1000.0),
        ("double", "1.5d", 1.5),
        ("double", "nan", None),
        ("float", "-Infinity", float("-inf")),
        ("decimal(5,2)", "1.005", Decimal("1.01")),
        ("decimal(5,2)", "1234.5", None),
        ("decimal(3,0)", "12", Decimal(12)),
        ("decimal(2,2)", "0.25", Decimal("0.25")),
        ("date", "2024-02-29", datetime.date(2024, 2, 29)),
        ("date", "2023-2-3", datetime.date(2023, 2, 3)),
        ("date", "2023-02-29", None),
        (
            "timestamp",
            "2024-01-02 03:04:05.678901",
            datetime.datetime.fromisoformat("2024-01-02 03:04:05.678901"),
        ),
        ("timestamp", "2024-01-02", None),
        ("timestamp", "2024-01-02 03:04:05.123456789", None),
        ("binary", "aGk=", b"hi"),
        ("binary", "aGk", b"hi"),
        ("binary", "aG k=", b"aG k="),
        ("int", ".5", 0),
        ("int", "-", None),
        ("double", "-0x1p3", -8.0),
        ("binary", "hé", "hé".encode()),
        ("string", "  x ", "  x "),
        ("array<int>", "1:2:\\N", [1, 2, None]),
        ("map<string,int>", "a=1:b=2", [("a", 1), ("b", 2)]),
        ("struct<a:int,b:string>", "1:x", {"a": 1, "b": "x"}),
        ("struct<a:int,b:string>", "1", {"a": 1, "b": None}),
        ("array<int>", "1:x", None),
    ],
)
def test_values(kind: str, text: str, value: Any) -> None:
    made = StrictDelimitedInputWriter(field_delimiter=",", collection_delimiter=":", map_key_delimiter="=")
    made.bind([Column.of("v", kind), Column.of("n", "int")])
    parsed = made.parse([f"{text},1".encode()])
    if value is None:
        assert [(bad.index, bad.column) for bad in parsed.bad] == [(0, "v")]
    else:
        assert parsed.rows.to_pylist() == [{"v": value, "n": 1}]


@pytest.mark.parametrize("odd", ["a\nb", "a\rb", "a\r", "\ufeffa", '"', "é😀"])
def test_texts_with_ends_of_lines_in_them_stay_whole(odd: str) -> None:
    parsed = writer(Column.of("msg", "string")).parse([odd.encode(), b"x", b""])
    assert rows(parsed) == [(odd,), ("x",), ("",)]


def test_many_records_are_those_of_one_by_one() -> None:
    many = [f"{number},text {number}".encode() for number in range(10_000)]
    assert rows(writer().parse(many)) == [
        row for start in range(0, 10_000, 2_500) for row in rows(writer().parse(many[start : start + 2_500]))
    ]


def test_a_delimiter_that_is_no_ascii() -> None:
    assert rows(writer(delimiter="§").parse(["1§a".encode()])) == [(1, "a")]


def test_a_header_is_checked_when_connecting() -> None:
    made = StrictDelimitedInputWriter.new_builder().with_columns(["id", "text"]).build()
    with pytest.raises(InvalidColumn, match="lack msg and have text") as caught:
        made.bind(ALERTS)
    assert caught.value.missing == ["msg"]


@pytest.mark.parametrize("delimiter", ["", ",,", "\n"])
def test_delimiters_are_one_character(delimiter: str) -> None:
    with pytest.raises(InvalidConnection):
        StrictDelimitedInputWriter.new_builder().with_field_delimiter(delimiter).build()

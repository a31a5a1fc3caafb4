"""Queries that go on behind a key, what the key has to be, and rows that become columns."""

from __future__ import annotations

import random
import re
import sqlite3
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.ingest.errors import InvalidColumn, InvalidSource
from airflow_hive_federation.ingest.formats.sql_rows import rows_parsed
from airflow_hive_federation.ingest.queries import (
    KeyPosition,
    QueryRequest,
    _check_columns,
    _next_fetch_rows,
    checked_key,
    ingest_query,
    keyset_query,
)
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.model.types import Column, parse_type
from tests.support.examples import seeds

WALL_CLOCK = datetime(2026, 1, 2, 3, 4, 5, 500_000)  # noqa: DTZ001 - Hive's timestamps have no zone
MIDNIGHT = datetime.combine(date(2026, 1, 2), time.min)


def key(*values: Any) -> KeyPosition:
    return KeyPosition(columns=tuple("abc"[: len(values)]), values=values)


@pytest.mark.parametrize("seed", seeds(5))
def test_every_row_is_in_exactly_one_run(seed: int) -> None:
    chance = random.Random(seed)
    rows = {(chance.randrange(4), chance.choice("xyz"), chance.randrange(4)) for _ in range(40)}
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (a INTEGER, b TEXT, c INTEGER)")
    database.executemany("INSERT INTO t VALUES (?, ?, ?)", list(rows))
    fetched: list[tuple[Any, ...]] = []
    last = None
    while True:
        query, parameters = keyset_query("SELECT * FROM t;", ("a", "b", "c"), last, "?")
        page = database.execute(query, parameters).fetchmany(chance.randint(1, 7))
        if not page:
            break
        fetched += page
        last = key(*page[-1])
    assert fetched == sorted(rows)
    database.close()


def test_a_table_by_its_name_and_percent_signs() -> None:
    assert keyset_query("shop.orders", ["a"], None, "%s") == ("SELECT * FROM shop.orders ORDER BY a", [])
    text, parameters = keyset_query("SELECT 1 a WHERE 'x' LIKE '%'", ["a"], key(5), "%s")
    assert text == (
        "SELECT * FROM (SELECT 1 a WHERE 'x' LIKE '%%') ingested WHERE (a > %s) OR (a IS NULL) ORDER BY a"
    )
    assert parameters == [5]


@pytest.mark.parametrize(
    "value",
    [7, -(10**20), Decimal("1.50"), "ü'", date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, 6, UTC)],
)
def test_a_key_travels_as_text(value: Any) -> None:
    assert KeyPosition.of(key(value).to_text(), ["a"]) == key(value)
    assert KeyPosition.of("", ["a"]) is None


def test_the_position_of_something_else() -> None:
    with pytest.raises(ConfigurationError, match="is one of a, not of b"):
        KeyPosition.of(key(1).to_text(), ["b"])
    with pytest.raises(ConfigurationError, match="none of a query"):
        KeyPosition.of('{"uri": "x", "offset": 1, "line": 0}', ["a"])


@pytest.mark.parametrize(
    ("values", "last", "reason"),
    [
        ((None,), None, "null in a"),
        ((1.5,), None, r"a is 1.5 \(float\)"),
        ((True,), None, "by which rows are not ordered"),
        ((3,), key(3), "3 comes after 3, and is not greater"),
        ((1, "a"), key(1, "b"), "1, a comes after 1, b"),
        (("4",), key(3), "not supported between"),
    ],
)
def test_a_key_that_breaks_the_contract(values: Any, last: Any, reason: str) -> None:
    with pytest.raises(InvalidSource, match=reason):
        checked_key(values, last, "ab"[: len(values)])


def test_the_answers_columns() -> None:
    columns = [Column(name="id", type=parse_type("int")), Column(name="msg", type=parse_type("string"))]
    _check_columns(["msg", "id"], ["id"], columns)
    _check_columns(["seq", "msg", "id"], ["SEQ"], columns)
    with pytest.raises(InvalidColumn, match="lack msg"):
        _check_columns(["seq", "id"], ["seq"], columns)
    with pytest.raises(InvalidColumn, match="have more, which the table lacks"):
        _check_columns(["id", "msg", "more"], ["id"], columns)
    with pytest.raises(InvalidSource, match="lacks seq"):
        _check_columns(["id", "msg"], ["seq"], columns)
    with pytest.raises(InvalidSource, match="id twice"):
        _check_columns(["id", "id", "msg"], ["id"], columns)


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("int", Decimal(7), 7),
        ("tinyint", "5", 5),
        ("boolean", 1, True),
        ("string", 12, "12"),
        ("string", UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("double", Decimal("0.5"), 0.5),
        ("decimal(5,2)", 1.25, Decimal("1.25")),
        ("decimal(5,2)", 3, Decimal("3.00")),
        ("binary", memoryview(b"\x00\xff"), b"\x00\xff"),
        ("date", MIDNIGHT, date(2026, 1, 2)),
        ("date", "2026-01-02", date(2026, 1, 2)),
        ("timestamp", datetime(2026, 1, 2, 2, tzinfo=timezone(timedelta(hours=2))), MIDNIGHT),
        ("timestamp", "2026-01-02 03:04:05.5", WALL_CLOCK),
        ("array<int>", [1, None], [1, None]),
        ("bigint", None, None),
    ],
)
def test_values(kind: str, value: Any, stored: Any) -> None:
    parsed = rows_parsed([(value,)], [0], [Column(name="x", type=parse_type(kind))])
    assert not parsed.bad
    assert parsed.rows.column(0).to_pylist() == [stored]


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("int", 1.5, "not a whole number"),
        ("int", 2**31, "not int"),
        ("tinyint", "x", "not a whole number"),
        ("boolean", 2, "is no boolean"),
        ("string", 1.5, "is no string"),
        ("string", True, "is no string"),
        ("decimal(3,1)", Decimal("1.25"), r"not decimal\(3,1\)"),
        ("date", WALL_CLOCK, "is no date"),
        ("timestamp", 5, "is no timestamp"),
        ("double", b"1", "is no double"),
    ],
)
def test_values_that_do_not_fit(kind: str, value: Any, reason: str) -> None:
    column = Column(name="x", type=parse_type(kind))
    parsed = rows_parsed([(None, 1), (value, 2)], [0], [column])
    assert parsed.rows.num_rows == 1
    (bad,) = parsed.bad
    assert (bad.index, bad.column) == (1, "x")
    assert re.search(reason, bad.reason), bad.reason


@pytest.mark.parametrize(
    ("row", "count"),
    [((1, "a"), 10_000), ((1, None), 10_000), ((1, "x" * 80_000), 104), ((b"x" * 9_000_000,), 1)],
)
def test_wide_rows_are_fetched_by_the_few(row: tuple[Any, ...], count: int) -> None:
    assert _next_fetch_rows([row] * 100) == count


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"sql": " "}, "nothing to ingest"),
        ({"table": "t"}, "names no table"),
        ({"commit_records": 0}, "commit_records is 0"),
        ({"order_by": ()}, "needs columns"),
        ({"order_by": "id"}, "order_by is of type str"),
        ({"order_by": ["id; DROP"]}, "not the name of a column"),
    ],
)
def test_requests_that_make_no_sense(wrong: dict[str, Any], reason: str) -> None:
    request = QueryRequest(**{"table": "d.t", "sql": "t", "order_by": ["id"], **wrong})
    with pytest.raises(ConfigurationError, match=reason):
        ingest_query(MetastoreSettings(uris=("thrift://127.0.0.1:1",)), request, lambda: None)

"""Partitions that a condition may read."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import parse_one

from airflow_hive_federation.clusters.placement import PartitionFacts, Partitions
from airflow_hive_federation.clusters.predicates.conditions import (
    ANY,
    TRUE,
    Condition,
    bound,
    may_be_read,
    rejects_nulls,
)
from airflow_hive_federation.clusters.predicates.sql import Conditions
from airflow_hive_federation.clusters.predicates.values import DEFAULT_PARTITION, like
from airflow_hive_federation.clusters.statements.tokens import tokens_of, uncertain_strings

TODAY = date(2026, 3, 10)
DAYS = ["2026-02-28", "2026-03-01", "2026-03-09", "2026-03-10", DEFAULT_PARTITION]


def condition(sql: str) -> Condition:
    tree = parse_one(f"SELECT 1 FROM t WHERE {sql}", read="hive")
    conditions = Conditions(uncertain_strings(sql, tokens_of(sql)))
    return bound(conditions.condition(tree.args["where"].this), lambda key: key)


def read(sql: str, rows: Sequence[tuple[str, ...]], *keys: tuple[str, str]) -> list[tuple[str, ...]]:
    partitions = Partitions.of(PartitionFacts(row) for row in rows)
    flags = may_be_read(condition(sql), partitions, keys, (TODAY,))
    return [row for row, flag in zip(rows, flags.tolist(), strict=True) if flag]


def days(sql: str, kind: str = "string") -> list[str]:
    return [row[0] for row in read(sql, [(day,) for day in DAYS], ("ds", kind))]


@pytest.mark.parametrize("kind", ["string", "date", "varchar(10)"])
@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("ds = '2026-03-01'", ["2026-03-01"]),
        ("ds >= '2026-03-01'", ["2026-03-01", "2026-03-09", "2026-03-10"]),
        ("ds < date '2026-03-01'", ["2026-02-28"]),
        ("ds BETWEEN '2026-03-01' AND '2026-03-09'", ["2026-03-01", "2026-03-09"]),
        ("ds NOT BETWEEN '2026-03-01' AND '2026-03-09'", ["2026-02-28", "2026-03-10"]),
        ("ds IN ('2026-03-01', '2026-03-10')", ["2026-03-01", "2026-03-10"]),
        ("ds >= date_sub(current_date, 1)", ["2026-03-09", "2026-03-10"]),
        ("date_add(current_date(), -1) = ds", ["2026-03-09"]),
        ("ds = from_unixtime(unix_timestamp(), 'yyyy-MM-dd')", ["2026-03-10"]),
        ("substr(ds, 1, 7) = '2026-02'", ["2026-02-28"]),
        ("year(ds) = 2026 AND month(ds) = 3 AND day(ds) = 9", ["2026-03-09"]),
        ("date_format(ds, 'yyyyMM') = '202602'", ["2026-02-28"]),
        ("to_date(ds) = cast('2026-03-01' AS date)", ["2026-03-01"]),
        ("to_date(ds, 'yyyy-dd-MM') = cast('2026-09-03' AS date)", DAYS),
        ("ds LIKE '2026-03-0%'", ["2026-03-01", "2026-03-09"]),
        ("ds NOT LIKE '2026-03-0%'", ["2026-02-28", "2026-03-10"]),
        ("NOT ds NOT LIKE '2026-03-0%'", ["2026-03-01", "2026-03-09"]),
        ("ds NOT IN ('2026-03-01', '2026-03-10')", ["2026-02-28", "2026-03-09"]),
        ("ds NOT LIKE '2026-03-0%' ESCAPE '#'", DAYS),
        ("ds NOT RLIKE '2026.*'", DAYS),
        ("ds NOT ILIKE '2026-03-0%'", DAYS),
        ("ds NOT LIKE ANY ('2026-03-0%', 'x')", DAYS),
        ("ds NOT LIKE ALL ('2026-03-0%', 'x')", DAYS),
        ("ds IS DISTINCT FROM '2026-03-01'", DAYS),
        ("ds IS NOT DISTINCT FROM '2026-03-01'", ["2026-03-01"]),
        ("(ds IS NULL) IS NOT TRUE", DAYS),
        ("ds IS NULL", [DEFAULT_PARTITION]),
        ("ds IS NOT NULL", DAYS[:-1]),
        ("ds <=> null", [DEFAULT_PARTITION]),
        ("NOT ds = '2026-03-01'", ["2026-02-28", "2026-03-09", "2026-03-10"]),
        ("ds = '2026-03-01' OR v = 1", DAYS),
        ("ds = '2026-03-01' AND v = 1", ["2026-03-01"]),
        ("NOT (ds = '2026-03-01' AND v = 1)", DAYS),
        ("NOT (ds = '2026-03-01' OR v = 1)", ["2026-02-28", "2026-03-09", "2026-03-10"]),
        ("ds = '2026-03-01' AND NOT (ds = '2026-03-01')", []),
        ("false", []),
        ("ds = (SELECT max(ds) FROM t)", DAYS),
        ("ds IN (SELECT ds FROM t)", DAYS),
        ("ds = current_timestamp()", DAYS[:-1]),
        ("ds = '${hiveconf:day}'", DAYS[:-1]),
        (f"ds = '{DEFAULT_PARTITION}'", DAYS),
        ("ds RLIKE '2026.*'", DAYS),
        ("CASE WHEN ds = 'x' THEN true END", DAYS),
        ("rand() < 0.5", DAYS),
        ("ds BETWEEN SYMMETRIC '2026-03-09' AND '2026-03-01'", DAYS),
        ("(ds, v) <> ('2026-03-01', 1)", DAYS),
        ("(ds, v) = (SELECT '2026-03-01', 1)", DAYS),
        ("(ds, v) = ('2026-03-01', 1, 2)", DAYS),
        ("(ds, v) = ('2026-03-01', 1)", ["2026-03-01"]),
        ("(ds, v) = f('2026-03-01', 1)", DAYS),
        ("ds = dateadd(MONTH, 1, '2026-02-28')", DAYS[:-1]),
        ("ds IN ('2026-03-01', (SELECT 'x'))", DAYS),
        ("ds = current_date + 1", DAYS[:-1]),
        ("ds > date_add('9999-12-31', 1)", DAYS[:-1]),
        ("ds > date_add(current_date, '1')", DAYS[:-1]),
        ("date_format(ds, v) = '202602'", DAYS),
        ("substr(ds, v) = 'x'", DAYS),
        ("c.d.t.ds = '2026-03-01'", DAYS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_days(kind: str, sql: str, expected: list[str]) -> None:
    assert days(sql, kind) == expected


@pytest.mark.parametrize(
    ("kind", "sql", "expected"),
    [
        ("int", "hr = 7", ["7", "07", "7.5", "x"]),
        ("int", "hr = '7'", ["7", "07", "7.5", "x"]),
        # Hive compares doubles, Spark casts the string to an integer.
        ("int", "hr = '7.5'", ["7", "07", "10", "-1", "7.5", "x"]),
        ("int", "hr < 10", ["7", "07", "-1", "7.5", "x"]),
        ("int", "hr IN (10, -1)", ["10", "-1", "7.5", "x"]),
        ("int", "hr = 7.5", ["7.5", "x"]),
        ("int", "hr + 1 = 8", ["7", "07", "7.5", "x"]),
        ("string", "hr = '7'", ["7"]),
        ("string", "hr < '10'", ["07", "-1"]),
        # As numbers, '07' is 7 in both engines, but '7.5' is 7 in one.
        ("string", "hr = 7", ["7", "07", "7.5", "x"]),
        ("string", "hr < 10", ["7", "07", "-1", "7.5", "x"]),
        ("string", "cast(hr AS int) = 10", ["07", "10", "7.5", "x"]),
        ("decimal(4,1)", "hr = 7.5", ["7.5", "x"]),
        ("double", "hr = 8", ["7", "07", "10", "-1", "7.5", "x"]),
        ("timestamp", "hr = 'x'", ["7", "07", "10", "-1", "7.5", "x"]),
        ("int", "cast(hr AS int) = 10", ["10", "7.5", "x"]),
        ("int", "date_format(hr, 'yyyy') = 'x'", ["7", "07", "10", "-1", "7.5", "x"]),
        ("decimal(4,1)", "hr LIKE 'z'", ["7", "07", "10", "-1", "7.5", "x"]),
    ],
    ids=str,
)
def test_numbers(kind: str, sql: str, expected: list[str]) -> None:
    rows = [(value,) for value in ("7", "07", "10", "-1", "7.5", "x")]
    assert [row[0] for row in read(sql, rows, ("hr", kind))] == expected


def test_the_year_of_a_week_is_not_the_year_of_a_day() -> None:
    assert days("ds = date_format(current_date, 'yyyy-MM-dd')") == ["2026-03-10"]
    assert days("ds = date_format(current_date, 'YYYY-MM-dd')") == DAYS[:-1]
    assert days("ds = 'Y'") == []


def test_a_cast_beyond_the_range_of_its_type_decides_nothing() -> None:
    """Hive wraps the number around; Spark does that, fails, or returns null."""
    rows = [("3000000000",), ("-2147483649",), ("2147483647",), ("-2147483648",), ("4",)]
    for kind in ("bigint", "string"):
        assert read("cast(hr AS int) = 4", rows, ("hr", kind)) == [rows[0], rows[1], rows[4]]
    assert read("cast(hr AS bigint) = 4", rows, ("hr", "bigint")) == [rows[4]]


@pytest.mark.parametrize("sql", ["flag = 1", "cast(flag AS string) = 'True'", "concat(flag, '') = 'x'"])
def test_engines_convert_booleans_differently(sql: str) -> None:
    rows = [("true",), ("false",)]
    assert read(sql, rows, ("flag", "boolean")) == rows


def test_texts_that_only_python_takes_for_days() -> None:
    rows = [("2026-03-01",), ("20260302",), ("2026-W10-2",), ("2026-02-30",)]
    assert read("ds = date '2026-03-01'", rows, ("ds", "string")) == rows


def test_engines_count_characters_differently() -> None:
    rows = [("a1",), ("\N{LATIN SMALL LETTER A WITH DIAERESIS}1",)]
    assert read("substr(ds, 1, 1) = 'b'", rows, ("ds", "string")) == rows[1:]


def test_escapes_in_patterns() -> None:
    assert like("x", "\\%") == ANY
    assert like("x", "%") == TRUE


def test_several_keys() -> None:
    rows = [(ds, hr) for ds in ("2026-03-01", "2026-03-02") for hr in ("0", "1", "2")]
    keys = (("ds", "string"), ("hr", "int"))
    assert read("(ds, hr) IN (('2026-03-01', 1), ('2026-03-02', 0))", rows, *keys) == [rows[1], rows[3]]
    assert read("concat(ds, '-', hr) > '2026-03-02-0'", rows, *keys) == rows[4:]
    assert read("ds = '2026-03-01' AND hr > 0 OR hr = 2", rows, *keys) == [rows[1], rows[2], rows[5]]


def test_a_day_that_may_change_reads_both() -> None:
    partitions = Partitions.of(PartitionFacts((day,)) for day in DAYS)
    both = (date(2026, 3, 9), date(2026, 3, 10))
    flags = may_be_read(condition("ds = current_date"), partitions, [("ds", "string")], both)
    assert flags.tolist() == [False, False, True, True, False]


def test_no_partitions() -> None:
    assert read("ds = '1'", [], ("ds", "string")) == []


def test_conditions_behind_an_outer_join() -> None:
    assert rejects_nulls(condition("ds = '1' AND hr > 3"))
    assert rejects_nulls(condition("ds IN ('1') OR ds LIKE 'x%'"))
    assert not rejects_nulls(condition("ds IS NULL OR ds = '1'"))
    assert not rejects_nulls(condition("ds <=> hr"))
    assert not rejects_nulls(condition("ds = '1' OR f(ds)"))
    assert not rejects_nulls(condition("NOT f(ds)"))


# -- beside a database ---------------------------------------------------------------------------------------

_VALUES = st.sampled_from(["a", "b", "c", "d", DEFAULT_PARTITION])
_LITERALS = st.sampled_from(["'a'", "'b'", "'c'", "'d'", "NULL", "k", "j"])
_LEAVES = st.one_of(
    st.builds("{} {} {}".format, _LITERALS, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), _LITERALS),
    st.builds("{} {}IN ({}, {})".format, _LITERALS, st.sampled_from(["", "NOT "]), _LITERALS, _LITERALS),
    st.builds("{} BETWEEN {} AND {}".format, _LITERALS, _LITERALS, _LITERALS),
    st.builds("{} IS {}NULL".format, _LITERALS, st.sampled_from(["", "NOT "])),
)
_CONDITIONS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("(NOT {})".format, inner),
    ),
    max_leaves=8,
)


@given(sql=_CONDITIONS, rows=st.lists(st.tuples(_VALUES, _VALUES), min_size=1, max_size=8, unique=True))
def test_decidable_conditions_read_what_a_database_finds(sql: str, rows: list[tuple[str, str]]) -> None:
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE t (n, k, j)")
        values = [[None if value == DEFAULT_PARTITION else value for value in row] for row in rows]
        database.executemany("INSERT INTO t VALUES (?, ?, ?)", [(n, *row) for n, row in enumerate(values)])
        expected = {rows[n] for (n,) in database.execute(f"SELECT n FROM t WHERE {sql}")}
    database.close()
    assert set(read(sql, rows, ("k", "string"), ("j", "string"))) == expected

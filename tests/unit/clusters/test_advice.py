"""Advice on copies from statements that the router decided on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from airflow_hive_federation.clusters.advice import advise
from airflow_hive_federation.clusters.advice_records import (
    StatementRecord,
    partition_day,
    record_from_json,
    record_of,
    template_of,
)
from airflow_hive_federation.clusters.advice_result import Advice, CopyAdvice
from airflow_hive_federation.clusters.placement import Session
from airflow_hive_federation.clusters.routing.route import decide
from tests.support.catalogs import CLUSTERS, Catalog, placed

TODAY = date(2026, 3, 31)
WEEK = tuple(TODAY - timedelta(days=back) for back in range(7))
JOIN = "SELECT * FROM t11 JOIN t21 ON t11.id = t21.id WHERE t11.name = 'x'"
LAST_30_DAYS = "INSERT INTO t21 SELECT id FROM facts WHERE day > date_sub(current_date, 30)"


@pytest.fixture
def catalog() -> Catalog:
    """T11 and T12 of C1, T21 of C2, T31 of C3, and 60 days of facts in C1."""
    made = Catalog()
    made.add("t11", placed("C1"), size=100)
    made.add("t12", placed("C1"), size=40)
    made.add("t21", placed("C2"), size=1000)
    made.add("t31", placed("C3"), size=1000)
    days = {(f"{TODAY - timedelta(days=back)}",): None for back in range(60)}
    made.add_partitioned("facts", placed("C1"), [("day", "string")], days, size=10)
    return made


def records(
    catalog: Catalog,
    text: str,
    days: Iterable[date] = WEEK,
    *,
    session: Session | None = None,
    source: str = "dag.task",
    again: str = "",
) -> list[StatementRecord]:
    """Route a statement on days, as two tries of one run per day; refusals are records, too."""
    session = session or Session()
    made = []
    for day in days:
        decision = decide(text, catalog, CLUSTERS, session, today=[day])
        for attempt in range(2):
            time = datetime(day.year, day.month, day.day, 3, attempt, tzinfo=UTC)
            record = record_of(
                text, session, decision, time=time, day=day, run=f"{source}.{day}{again}", source=source
            )
            assert record is not None
            made.append(record)
    return made


def advice(catalog: Catalog, *histories: list[StatementRecord], budget: int | None = None) -> Advice:
    every = [record for advices in histories for record in advices]
    return advise(every, catalog, CLUSTERS, today=TODAY, days=7, budget_bytes=budget)


def shown(copy: CopyAdvice) -> tuple[str, str, int | None, int, int, int]:
    return copy.table, copy.cluster, copy.days, copy.copied_bytes, copy.kept_bytes, copy.saved_bytes


def test_the_smaller_table_of_a_join_is_copied_to_the_cluster_of_the_larger(catalog: Catalog) -> None:
    advised = advice(catalog, records(catalog, JOIN))
    assert [shown(copy) for copy in advised.copies] == [("default.t11", "C2", None, 100, 0, 700)]
    assert (advised.copies[0].source, advised.copies[0].statements, advised.copies[0].runs) == ("C1", 1, 7)
    assert (advised.runs, advised.refused, advised.crossing_bytes, advised.left_out) == (7, 7, 700, ())


def test_the_advice_followed_the_statement_runs_and_nothing_is_advised(catalog: Catalog) -> None:
    past = records(catalog, JOIN)
    (copy,) = advice(catalog, past).copies
    catalog.add("t11", placed("C1", copy.cluster), size=100)
    assert decide(JOIN, catalog, CLUSTERS, Session()).cluster == copy.cluster
    advised = advice(catalog, past)
    assert (advised.copies, advised.left_out, advised.crossing_bytes) == ((), (), 0)
    # A stale copy is none.
    catalog.add("t11", placed("C1", f"{copy.cluster}!"), size=100)
    assert advice(catalog, past).copies == (copy,)


def test_a_statement_that_ran_once_is_left_out(catalog: Catalog) -> None:
    advised = advice(catalog, records(catalog, JOIN, WEEK[:1]))
    assert advised.copies == ()
    assert [(rule.runs, rule.crossing_bytes) for rule in advised.left_out] == [(1, 100)]
    assert "too rarely" in advised.left_out[0].why


def test_statements_share_a_copy(catalog: Catalog) -> None:
    other = "INSERT INTO t21 SELECT * FROM t11"
    advised = advice(catalog, records(catalog, JOIN, WEEK[:1]), records(catalog, other, WEEK[:1], source="b"))
    assert [shown(copy) for copy in advised.copies] == [("default.t11", "C2", None, 100, 0, 200)]
    assert advised.copies[0].statements == 2


def test_days_are_advised_as_a_window_that_costs_its_new_days(catalog: Catalog) -> None:
    advised = advice(catalog, records(catalog, LAST_30_DAYS))
    # 30 days at once, six more within the week; 30 days are read on each of seven.
    assert [shown(copy) for copy in advised.copies] == [("default.facts", "C2", 30, 300, 60, 2100)]
    assert advised.copies[0].key == "day"


def test_a_day_that_is_read_once_is_not_worth_a_window(catalog: Catalog) -> None:
    advised = advice(
        catalog, records(catalog, "INSERT INTO t21 SELECT id FROM facts WHERE day = current_date")
    )
    assert advised.copies == ()
    assert "too rarely" in advised.left_out[0].why


def test_windows_of_one_table_are_paid_once(catalog: Catalog) -> None:
    week = LAST_30_DAYS.replace("30", "7").replace("INTO", "OVERWRITE TABLE")
    advised = advice(catalog, records(catalog, LAST_30_DAYS), records(catalog, week, source="b"))
    assert [shown(copy)[:5] for copy in advised.copies] == [("default.facts", "C2", 30, 300, 60)]
    assert advised.saved_bytes == 7 * 300 + 7 * 70
    # A smaller budget has room for the shorter window only.
    advised = advice(catalog, records(catalog, LAST_30_DAYS), records(catalog, week, source="b"), budget=200)
    assert [shown(copy) for copy in advised.copies] == [("default.facts", "C2", 7, 70, 60, 490)]
    assert [advice.why for advice in advised.left_out] == ["the budget has no room for its copies"]


def test_partitions_that_stay_the_same_are_advised_by_name(catalog: Catalog) -> None:
    old = TODAY - timedelta(days=50)
    advised = advice(catalog, records(catalog, f"INSERT INTO t21 SELECT id FROM facts WHERE day = '{old}'"))
    assert [shown(copy) for copy in advised.copies] == [("default.facts", "C2", None, 10, 0, 70)]
    assert advised.copies[0].partitions == ((str(old),),)


def test_a_table_that_is_written_between_its_reads_costs_each_version(catalog: Catalog) -> None:
    past = []
    for number, day in enumerate(reversed(WEEK)):
        catalog.add("t11", placed("C1"), size=100 + number)
        past += records(catalog, JOIN, [day])
    assert advice(catalog, past).copies == ()
    assert "too rarely" in advice(catalog, past).left_out[0].why


def test_the_cluster_of_the_session_is_the_one_that_gets_the_copy(catalog: Catalog) -> None:
    past = records(catalog, "SELECT * FROM t11", session=Session(cluster="C3"))
    assert [shown(copy)[:2] for copy in advice(catalog, past).copies] == [("default.t11", "C3")]


def test_a_statement_needs_all_of_its_copies(catalog: Catalog) -> None:
    three = "INSERT INTO t31 SELECT * FROM t11 JOIN t12 ON t11.id = t12.id"
    advised = advice(catalog, records(catalog, three), budget=139)
    assert advised.copies == ()
    advised = advice(catalog, records(catalog, three), budget=140)
    assert sorted(shown(copy)[0] for copy in advised.copies) == ["default.t11", "default.t12"]
    assert (advised.saved_bytes, advised.copied_bytes) == (7 * 140, 140)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("FROM t12 INSERT INTO t21 SELECT * INSERT INTO t31 SELECT *", "which copies do not change"),
        ("INSERT INTO t21 SELECT * FROM t12", "default.t12 cannot be copied: it is an ACID table"),
        ("INSERT INTO t21 SELECT * FROM nosize", "run ANALYZE TABLE default.nosize"),
        ("INSERT INTO t21 SELECT * FROM gone", "no table default.gone"),
    ],
)
def test_what_no_copy_can_serve_is_left_out_with_the_reason(catalog: Catalog, text: str, why: str) -> None:
    catalog.add("gone", placed("C1"))
    catalog.add_partitioned("nosize", placed("C1"), [("p", "string")], {("a",): None}, size=None)
    past = records(catalog, text)
    del catalog.tables["default", "gone"]
    refused = {"default.t12": "it is an ACID table"}
    advised = advise(past, catalog, CLUSTERS, today=TODAY, refused=refused)
    assert advised.copies == ()
    assert [advice.runs for advice in advised.left_out] == [7]
    assert why in advised.left_out[0].why


def test_an_empty_history_has_no_advice(catalog: Catalog) -> None:
    assert advice(catalog) == Advice(days=7, budget_bytes=None)


def test_records_hold_no_literal(catalog: Catalog) -> None:
    text = "SELECT /* s1 */ 's2', \"s3\" FROM t11 -- s4\nWHERE id IN (111, 222) AND s LIKE 's5%' AND x = 33.5"
    record, *_ = records(catalog, text)
    line = json.dumps(record.to_json())
    for secret in ("s1", "s2", "s3", "s4", "s5", "111", "222", "33.5"):
        assert secret not in line
    assert record.template == template_of(text.replace("111, 222", "1, 2, 3").replace("s5", "s6"))
    assert record_from_json(line) == record


def test_temporary_tables_and_other_statements_have_no_record(catalog: Catalog) -> None:
    now = datetime(2026, 3, 31, tzinfo=UTC)
    session = Session(temporary={"t11": "C1"})
    for text, home in (
        ("SELECT * FROM t11", session),
        ("SELECT 1", Session()),
        ("USE CLUSTER C1", Session()),
        ("SELECT * FROM nowhere", Session()),
        ("some words", Session()),
    ):
        decision = decide(text, catalog, CLUSTERS, home)
        assert record_of(text, home, decision, time=now, day=TODAY, run="r", source="s") is None, text


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"time": "2026-01-01T00:00:00"},
        {"reads": [{"table": "t"}]},
        {"candidates": None},
        {"cluster": 1},
        {"day": "yesterday"},
    ],
)
def test_a_line_that_is_no_record_is_a_value_error(catalog: Catalog, change: dict[str, object]) -> None:
    record, *_ = records(catalog, JOIN)
    with pytest.raises(ValueError, match=r"."):
        record_from_json(json.dumps({**record.to_json(), **change}))


def test_days_are_read_in_two_forms() -> None:
    assert partition_day("2026-01-31") == partition_day("20260131") == date(2026, 1, 31)
    assert [partition_day(record) for record in ("2026-13-01", "2026-W01-1", "12345678901", "eu", "")] == [
        None
    ] * 5


def test_a_later_try_counts_and_not_the_first(catalog: Catalog) -> None:
    past = records(catalog, JOIN)
    ran = [
        replace(record, cluster="C2", candidates=("C2",), time=record.time + timedelta(minutes=9))
        for record in past
    ]
    assert advice(catalog, past, ran).refused == 0

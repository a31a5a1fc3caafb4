"""The commands print a plan and a status; test_cycles.py has them of real metastores."""

from __future__ import annotations

import json

import pytest

from airflow_hive_federation.cli.replication_state import print_plan, print_status
from airflow_hive_federation.replication.cycle_plan import CyclePlan, PlannedTable
from airflow_hive_federation.replication.replica.cycle_history import BOOTSTRAP, IDLE, INCREMENT, CycleRecord
from airflow_hive_federation.replication.status import Lag, ReplicationStatus, TableLag

TABLES = [
    PlannedTable(name="orders", action="alter", files=3, size_bytes=12_000, changes=["columns"]),
    PlannedTable(
        name="lines",
        action="continue",
        files=1,
        size_bytes=5,
        partitions_added=[f"d={day}" for day in range(5)],
        partitions_dropped=["d=x"],
    ),
    PlannedTable(name="gone", action="drop"),
]
PLAN = CyclePlan(database="shop", kind=INCREMENT, event_id=90, events=1_200, transactions=7, tables=TABLES)
CYCLES = [
    CycleRecord(kind=BOOTSTRAP, event_id=3, ended_s=1_700_000_000, seconds=2.0, size_bytes=4_000_000),
    CycleRecord(kind=IDLE, event_id=4, ended_s=1_700_000_900, cycles=12),
]


def test_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(PLAN)
    output = capsys.readouterr().out
    assert "would take 1,200 events and 7 transactions, up to event 90" in output
    lines = [line for line in output.splitlines() if "│" in line]
    assert [cell for cell in map(str.strip, lines[0].split("│")) if cell and cell != "3"] == [
        "orders",
        "alter",
        "12.0 kB",
        "changed: columns",
    ]
    assert "new partitions: d=0, d=1, d=2 and 2 more; partitions dropped: d=x" in lines[1]
    assert "drop" in lines[2]
    assert json.loads(json.dumps(PLAN.to_json()))["size_bytes"] == 12_005


def test_a_bootstrap_and_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(CyclePlan(database="shop", kind=BOOTSTRAP, event_id=9, waits_for=[4, 5]))
    print_plan(CyclePlan(database="shop", kind=IDLE, event_id=9))
    print_plan(CyclePlan(database="shop", kind=BOOTSTRAP, event_id=9, unfinished=["file:/dumps/shop/7-8"]))
    assert capsys.readouterr().out.splitlines() == [
        "Database shop is not published: a bootstrap at event 9",
        "It would wait for transactions 4, 5",
        "Database shop is up to date at event 9: nothing to do",
        "Database shop is not published: a bootstrap at event 9",
        "The load of file:/dumps/shop/7-8 is unfinished: the cycle repeats its work",
    ]


def test_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    status = ReplicationStatus(
        database="shop",
        state="loaded",
        event_id=4,
        running="policy shop, process 7 of airflow on worker",
        source_event_id=9,
        lag=Lag(events=3, seconds=61.0),
        tables=[TableLag(name="orders", events=3, seconds=61.0, size_bytes=1_000)],
        cycles=CYCLES,
    )
    print_status(status)
    output = capsys.readouterr().out
    for text in (
        "Database shop is loaded at event 4",
        "A cycle is at work: policy shop, process 7 of airflow on worker",
        "The source is at event 9; behind by 3 events, 1 min 1 s",
        "idle, 12 times",
        "4.0 MB",
        "2.0 s",
        "2.0 MB/s",
    ):
        assert text in output
    assert json.loads(json.dumps(status.to_json()))["cycles"][0]["bytes_per_s"] == 2_000_000


def test_tables_that_stay_out_and_a_cycle_that_would_stop(capsys: pytest.CaptureFixture[str]) -> None:
    skipped = {"events": "it is kept by Iceberg", "totals": "it is a materialized view"}
    print_plan(CyclePlan(database="shop", kind=IDLE, event_id=9, skipped=skipped, retained=["events"]))
    print_status(ReplicationStatus(database="shop", state="loaded", skipped=skipped, blocked="Lost."))
    assert capsys.readouterr().out.splitlines() == [
        "Database shop is up to date at event 9: nothing to do",
        "Not replicated: events: it is kept by Iceberg; its replica is kept",
        "Not replicated: totals: it is a materialized view",
        "Database shop is loaded",
        "The next cycle would stop: Lost.",
        "Not replicated: events: it is kept by Iceberg",
        "Not replicated: totals: it is a materialized view",
    ]


def test_a_source_that_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(ReplicationStatus(database="shop", state="loaded", event_id=4, source_error="No server."))
    assert capsys.readouterr().out.splitlines() == [
        "Database shop is loaded at event 4",
        "The source does not answer: No server.",
    ]

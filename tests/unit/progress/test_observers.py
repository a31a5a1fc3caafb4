"""Observers, and the ways in which long work reports to them."""

from __future__ import annotations

import logging
from itertools import count

import pytest

from airflow_hive_federation.errors import CycleLostError
from airflow_hive_federation.hooks.progress import LOG_EVENTS_VARIABLE, task_observer
from airflow_hive_federation.progress.events import (
    Event,
    FilesProcessed,
    PartitionsCounted,
    Published,
    StepStarting,
    TablesProcessed,
    TransactionsAborted,
)
from airflow_hive_federation.progress.kinds import Activity, FileJob, Step
from airflow_hive_federation.progress.lines import EventFormatter, event_in
from airflow_hive_federation.progress.observers import (
    LOGGED,
    LOGGED_QUIETLY,
    RECORD_EVENT,
    Steps,
    counted,
    spaced,
)

PUBLISHED = Published(database="shop", event_id=7)
ABORTED = TransactionsAborted(database="shop", transactions=(3,))
STARTING = StepStarting(database="shop", step=Step.CREATE, subject="orders")


def test_partitions_are_counted_twice_per_minute() -> None:
    events: list[Event] = []
    items = range(130)
    passed = counted(items, "db.t", Activity.READ, events.append, clock=count(0, 0.5).__next__)
    assert list(passed) == [*items]
    assert events == [
        PartitionsCounted(table="db.t", activity=Activity.READ, partitions=60, seconds=30.0),
        PartitionsCounted(table="db.t", activity=Activity.READ, partitions=120, seconds=60.0),
    ]


def test_counts_are_spaced_and_other_events_are_not() -> None:
    events: list[Event] = []
    observer = spaced(events.append, every_s=30.0, clock=count(0, 10).__next__)
    for tables in range(8):
        observer(TablesProcessed(tables=tables, all_tables=8))
    observer(PUBLISHED)
    observer(PUBLISHED)
    assert events == [
        TablesProcessed(tables=3, all_tables=8),
        TablesProcessed(tables=6, all_tables=8),
        PUBLISHED,
        PUBLISHED,
    ]


def test_the_last_count_of_files_is_passed_on() -> None:
    events: list[Event] = []
    observer = spaced(events.append)
    done = [
        FilesProcessed(
            job=FileJob.COPY, files=files, all_files=3, size_bytes=files, all_bytes=3, bytes_per_s=1.0
        )
        for files in (0, 0, 3)
    ]
    for event in done:
        observer(event)
    assert events == done[-1:]


def test_a_step_is_announced_after_the_check_that_it_may_begin() -> None:
    events: list[Event] = []
    lost = False

    def check() -> None:
        if lost:
            raise CycleLostError("The lock is lost.", remedy="Begin anew.")

    step = Steps(events.append, "shop", check)
    step(Step.CREATE, "orders")
    lost = True
    with pytest.raises(CycleLostError):
        step(Step.END_TRANSACTION, 5)
    assert events == [STARTING]
    assert STARTING.name == "create orders"
    assert StepStarting(database="shop", step=Step.PUBLISH).name == "publish"


def test_log_records_hold_words_level_and_event(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for event in (PUBLISHED, ABORTED, STARTING):
        LOGGED(event)
    LOGGED_QUIETLY(PUBLISHED)
    assert [
        (record.levelname, record.getMessage(), getattr(record, RECORD_EVENT)) for record in caplog.records
    ] == [
        ("INFO", "shop is published at event 7.", PUBLISHED),
        ("WARNING", "shop: aborted 1 transaction that did not end in time: 3", ABORTED),
        ("DEBUG", "shop: create orders", STARTING),
        ("DEBUG", "shop is published at event 7.", PUBLISHED),
    ]


def test_an_event_passes_through_a_line_of_a_process() -> None:
    record = logging.LogRecord("job", logging.INFO, __file__, 1, "words", (), None)
    formatter = EventFormatter("%(message)s")
    assert formatter.format(record) == "words"
    setattr(record, RECORD_EVENT, PUBLISHED)
    line = formatter.format(record)
    assert line.startswith("words ")
    assert event_in(f"26/01/01 INFO driver: {line}\n") == PUBLISHED
    assert event_in("words") is None
    assert event_in(line[:-3]) is None
    assert event_in(line.replace("Published", "Unknown")) is None
    assert event_in(line.replace(": 7", ': "7"')) is None
    assert event_in(line.partition("{")[0] + "[" * 100_000) is None


class FieldsLog:
    """A logger that takes fields, as Airflow's."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, object]]] = []

    def __getattr__(self, level: str) -> object:
        return lambda text, *values, **fields: self.lines.append((level, text % values, fields))


def test_a_task_log_has_words_and_on_demand_the_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOG_EVENTS_VARIABLE, raising=False)
    log = FieldsLog()
    for event in (STARTING, ABORTED):
        task_observer(log)(event)
    monkeypatch.setenv(LOG_EVENTS_VARIABLE, "true")
    task_observer(log)(PUBLISHED)
    assert log.lines == [
        ("debug", "shop: create orders", {}),
        ("warning", "shop: aborted 1 transaction that did not end in time: 3", {}),
        ("info", "shop is published at event 7.", {"hive_federation_event": PUBLISHED.to_json()}),
    ]


def test_a_logger_of_python_gets_no_fields(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(LOG_EVENTS_VARIABLE, "true")
    caplog.set_level(logging.INFO)
    task_observer(logging.getLogger("task"))(PUBLISHED)
    assert caplog.messages == ["shop is published at event 7."]

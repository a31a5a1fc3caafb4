"""Each event has words, one line of plain text."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import airflow_hive_federation
from airflow_hive_federation.progress import cycle_events as cev
from airflow_hive_federation.progress import events as ev
from airflow_hive_federation.progress import job_events as jev
from airflow_hive_federation.progress.kinds import Activity, FileJob, Step
from airflow_hive_federation.progress.reading import event_classes, event_of
from airflow_hive_federation.progress.words import beside_bar, words

FOLLOWED = cev.CycleFollowed(
    database="shop",
    cycle="increment",
    event_id=9,
    events=3,
    transactions=1,
    tables=1,
    files=0,
    size_bytes=0,
    seconds=2.0,
    lag_s=0.0,
)

WORDS: list[tuple[ev.Event, str]] = [
    (ev.StepStarting(database="shop", step=Step.CREATE, subject="orders"), "shop: create orders"),
    (ev.StepStarting(database="shop", step=Step.PUBLISH), "shop: publish"),
    (
        ev.PartitionsCounted(table="a.t", activity=Activity.READ, partitions=6000, seconds=30.0),
        "a.t: 6,000 partitions read so far, 200 partitions/s",
    ),
    (
        ev.PartitionsCounted(table="a.t", activity=Activity.COMPARED, partitions=60, seconds=30.0),
        "a.t: 60 partitions compared, and altered where they differ, so far, 2 partitions/s",
    ),
    (
        ev.FilesProcessed(
            job=FileJob.COPY,
            files=1200,
            all_files=2200,
            size_bytes=2_000_000,
            all_bytes=9_000_000,
            bytes_per_s=1.5e6,
        ),
        "copied 1,200 of 2,200 files, 2.0 of 9.0 MB, 1.5 MB/s",
    ),
    (
        ev.FilesProcessed(
            job=FileJob.DIGEST, files=1, all_files=1, size_bytes=700, all_bytes=763, bytes_per_s=95_400.0
        ),
        "compared 1 of 1 file, 700 of 763 bytes, 95.4 kB/s",
    ),
    (
        ev.DrainStarted(database="shop", event_id=7, transactions=(3,)),
        "shop: event 7; 1 transaction to wait for: 3",
    ),
    (
        ev.DrainStarted(database="shop", event_id=7, transactions=()),
        "shop: event 7; no transaction to wait for",
    ),
    (
        ev.TransactionsOpen(database="shop", transactions=(3, 4)),
        "shop: 2 transactions still open: 3, 4",
    ),
    (
        ev.TransactionsOpen(database="shop", transactions=tuple(range(1, 1023))),
        f"shop: 1,022 transactions still open: {', '.join(map(str, range(1, 21)))} and 1,002 more",
    ),
    (ev.TransactionsEnded(database="shop"), "shop: all transactions have ended"),
    (
        ev.TransactionsAborted(database="shop", transactions=(3,)),
        "shop: aborted 1 transaction that did not end in time: 3",
    ),
    (ev.CycleChosen(database="shop", published=True), "shop is published: an increment."),
    (ev.CycleChosen(database="shop", published=False), "shop is new: a bootstrap."),
    (
        ev.TableLeftOut(table="a.t", reason="it is of type INDEX_TABLE"),
        "a.t is not replicated: it is of type INDEX_TABLE.",
    ),
    (
        ev.TableLeftOut(table="a.t", reason="it is broken", replica_stays=True),
        "a.t is not replicated: it is broken; its replica stays as it was.",
    ),
    (ev.TableVanished(table="a.t"), "a.t was dropped meanwhile and is left out."),
    (
        ev.TableExchanged(table="a.t", replica_stays=True),
        "a.t was dropped or exchanged meanwhile: its replica stays as it was until the next increment.",
    ),
    (
        ev.TableExchanged(table="a.t", replica_stays=False),
        "a.t was dropped or exchanged meanwhile: it is left out until the next increment.",
    ),
    (
        ev.TableDumped(table="a.t", partitions=1, files=1200, size_bytes=642),
        "a.t: 1 partition, 1,200 files, 642 bytes",
    ),
    (ev.TableDumped(table="a.t", files=1, size_bytes=5_567_910), "a.t: 1 file, 5.6 MB"),
    (ev.TableDumped(table="a.v", files=0, size_bytes=0), "a.v: its definition"),
    (
        ev.TableDumped(table="a.t", work="continue", files=122, size_bytes=5_573),
        "a.t: continue, 122 files, 5.6 kB",
    ),
    (ev.TableDumped(table="a.v", work="create", files=0, size_bytes=0), "a.v: create, its definition"),
    (
        ev.BootstrapDumped(dump="/d/7-1", tables=1, partitions=0, files=1200),
        "/d/7-1: 1 table, 0 partitions, 1,200 files",
    ),
    (
        ev.BootstrapDumped(dump="/d/7-1", tables=1, partitions=0, files=3, earlier=True),
        "Dump /d/7-1 is finished already.",
    ),
    (
        ev.IncrementDumped(dump="/d/7-9-1", events=2, transactions=1, tables=1),
        "/d/7-9-1: 2 events, 1 transaction, 1 table",
    ),
    (ev.NothingChanged(database="shop", event_id=9), "shop: nothing to do up to event 9"),
    (ev.DumpRemoved(dump="/d/7-1"), "Dump /d/7-1 is needed no more and is removed."),
    (
        ev.LockContended(database="shop", holder="policy p, process 3 of host"),
        "shop is locked by policy p, process 3 of host; checking whether it is alive.",
    ),
    (
        ev.LockRemoved(database="shop", holder="policy p, process 3 of host"),
        "policy p, process 3 of host is dead: its lock of shop is removed.",
    ),
    (ev.FilesCopied(database="shop", files=1), "shop: 1 file copied"),
    (ev.FileRemoved(uri="/w/t/f"), "Removed /w/t/f, left by an earlier load"),
    (ev.TableCreated(table="a.t", partitions=3), "a.t: created with 3 partitions"),
    (
        ev.DanglingAborted(database="shop", transactions=(3, 4)),
        "shop: aborted transactions of earlier runs: 3, 4",
    ),
    (
        cev.CompactionsRequested(database="shop", partitions=2),
        "shop: requested compactions of 2 partitions",
    ),
    (ev.Published(database="shop", event_id=7), "shop is published at event 7."),
    (
        ev.Published(database="shop", event_id=7, files=2, size_bytes=3000, seconds=1.5),
        "shop is published at event 7: 2 files, 3.0 kB in 1.5 s",
    ),
    (ev.Published(database="shop", event_id=7, earlier=True), "shop is published at event 7 already."),
    (ev.UpToDate(database="shop", event_id=9), "shop is up to date at event 9."),
    (
        ev.TableNotCompared(table="a.t", reason="its files are gone"),
        "a.t is not compared, because its files are gone.",
    ),
    (
        ev.ComparedByDigests(table="a.t", reason="1 of 3 files of the source no longer exist"),
        "a.t: 1 of 3 files of the source no longer exist; compared by digests alone",
    ),
    (ev.ReplicaCompared(database="shop", tables=4, differences=0), "shop: 4 tables compared, 0 differences"),
    (
        ev.ReplicaCompared(database="shop", tables=1, differences=1, unreadable=2),
        "shop: 1 table compared, 1 difference, 2 that cannot be read",
    ),
    (ev.RepairStarting(database="shop", tables=("a", "b")), "shop: repairing a, b"),
    (ev.SourceIsReplica(database="shop"), "shop is a replica already."),
    (ev.SourceMarked(database="shop", transactions=1), "shop is marked; waiting for 1 transaction."),
    (
        ev.TargetNotChecked(policy="p", reason="no answer."),
        "The target of policy 'p' is not checked: no answer.",
    ),
    (
        ev.NoFailoverStarted(database="shop"),
        "shop: no failover was started, so none is rolled back.",
    ),
    (ev.SourceWritable(database="shop"), "shop may be written again."),
    (
        ev.FailedOver(database="s", replica="t", event_id=9, policy="q"),
        (
            "Failed over: s of the former target may be written; t of the former source is its replica at "
            "event 9, by policy 'q'."
        ),
    ),
    (
        ev.TakenOver(database="copy", event_id=9),
        (
            "Taken over without its source: copy may be written. It has the source's events up to 9; what "
            "the source did after is lost with it."
        ),
    ),
    (
        ev.TakenOver(database="copy", event_id=9, missing=tuple(f"t/p={number}" for number in range(12))),
        (
            "Taken over without its source: copy may be written. It has the source's events up to 9; what "
            "the source did after is lost with it. Of what it had then, it lacks t/p=0, t/p=1, t/p=2, t/p=3, "
            "t/p=4, t/p=5, t/p=6, t/p=7, t/p=8, t/p=9 and 2 more."
        ),
    ),
    (cev.CopyPlanned(database="shop", files=2, size_bytes=3000), "shop: 2 files, 3.0 kB to copy"),
    (cev.TableCopied(table="shop.t", files=1, size_bytes=3), "shop.t: 1 file, 3 bytes copied"),
    (
        cev.SnapshotNotUsed(table="shop.t", directory="hdfs://nn/t", reason="its last snapshot is gone"),
        "shop.t: hdfs://nn/t is listed as a whole: its last snapshot is gone",
    ),
    (
        cev.SnapshotRemoved(directory="hdfs://nn/t", snapshot="s-1"),
        "Snapshot s-1 of hdfs://nn/t is removed: a later cycle has replaced it",
    ),
    (cev.FollowStarted(database="shop", event_id=7), "shop is followed from event 7 on"),
    (cev.LagSeen(database="shop", events=0, seconds=0.0), "shop lacks no event"),
    (cev.LagSeen(database="shop", events=2, seconds=1.0), "shop lacks 2 events, 1.0 s"),
    (FOLLOWED, "shop at event 9: increment, 3 events, 1 transaction, 1 table in 2.0 s"),
    (
        replace(FOLLOWED, cycle="bootstrap", events=0, transactions=0, files=2, size_bytes=3000, lag_s=2.5),
        "shop at event 9: bootstrap, 1 table, 2 files, 3.0 kB, 1.5 kB/s in 2.0 s, lag 2.5 s",
    ),
    (
        cev.CycleFailed(database="shop", error="No answer.", failures=2, pause_s=4.0),
        "Trying again in 4.0 s: No answer.",
    ),
    (cev.CycleFailed(database="shop", error="No answer.", failures=2, pause_s=0.0), "No answer."),
    (cev.FollowEnded(database="shop", event_id=9, cycles=1), "shop is at event 9 after 1 cycle"),
    (ev.TargetUnpublished(database="shop"), "shop is not published yet"),
    (
        jev.SparkJobSeen(application="application_1_7", report="s3://d/_report.json", state="is running"),
        "application application_1_7, which reports to s3://d/_report.json, is running",
    ),
    (jev.ApplicationStarted(application="app-1"), "Spark application app-1 has begun"),
    (ev.TargetBehind(database="shop", events=1, seconds=2.4), "shop is behind by 1 event, 2.4 s"),
    (ev.RemoteChecked(remote="far", ready=True), "far: the remote has changed"),
    (ev.RemoteChecked(remote="far", ready=False), "far: the remote has not changed"),
    (ev.RemoteChecked(remote="far", ready=True, partition="p=1"), "far: partition p=1 exists"),
    (
        ev.RemoteChecked(remote="far", ready=False, partition="p > 1", condition=True),
        "far: no partition with p > 1 exists",
    ),
    (ev.TablesProcessed(tables=500, all_tables=2000), "500 of 2,000 tables"),
    (
        ev.RecordsIngested(table="a.t", read_bytes=500, all_bytes=1000, files=1, committed=4000, seconds=2.0),
        "a.t: 4,000 records committed, 0.5 of 1.0 kB read, 2,000 records/s",
    ),
]


@pytest.mark.parametrize(("event", "text"), WORDS)
def test_the_words_of_an_event(event: ev.Event, text: str) -> None:
    assert words(event) == text


def test_each_class_of_events_has_words_here() -> None:
    assert {type(event).__name__ for event, _ in WORDS} == set(event_classes())


def test_the_words_beside_a_bar_leave_it_room_on_a_terminal_of_80_columns() -> None:
    event = ev.RecordsIngested(
        table="a.t",
        read_bytes=123_400_000_000,
        all_bytes=567_800_000_000,
        files=1,
        committed=12_345_678_900,
        seconds=2_000.0,
    )
    assert beside_bar(event) == "12,345,678,900 records, 123.4 of 567.8 GB, 6,172,839 records/s"
    assert len(beside_bar(event)) <= 62


@pytest.mark.parametrize("event", [event for event, _ in WORDS])
def test_an_event_passes_through_json(event: ev.Event) -> None:
    again = event_of(json.loads(json.dumps(event.to_json())))
    assert again == event
    assert hash(again) == hash(event)


@pytest.mark.parametrize(
    "values",
    [
        None,
        {},
        {"kind": "Nothing"},
        {"kind": "UpToDate", "database": "shop"},
        {"kind": "UpToDate", "database": "shop", "event_id": 9, "more": 1},
        {"kind": "UpToDate", "database": "shop", "event_id": "9"},
        {"kind": "UpToDate", "database": None, "event_id": 9},
        {"kind": "TransactionsOpen", "database": "shop", "transactions": "12"},
        {"kind": "TransactionsOpen", "database": "shop", "transactions": [1, "2"]},
        {"kind": "StepStarting", "database": "shop", "step": "fly"},
    ],
)
def test_what_is_no_event_is_refused(values: object) -> None:
    with pytest.raises(ValueError, match=r"is no event|lacks a field|is not a valid"):
        event_of(values)


def test_an_event_without_words_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="Event has no words"):
        words(ev.Event())


def matched(tree: ast.AST) -> Iterator[tuple[int, str, Callable[[str], object]]]:
    """Yield line, source and function of each test of a text against a constant pattern or beginning."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        constant, name = node.args[0], node.func.attr
        if not (isinstance(constant, ast.Constant) and isinstance(constant.value, str) and constant.value):
            continue
        text = constant.value
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "re" and name != "escape":
            yield node.lineno, text, re.compile(text).fullmatch
        elif name == "startswith":
            yield node.lineno, text, lambda line, text=text: line.startswith(text)


def test_no_module_reads_the_words_of_events() -> None:
    package = Path(airflow_hive_federation.__file__).parent
    readers = [
        f"{path.relative_to(package)}:{line} {source!r} matches {text!r}"
        for path in sorted(package.rglob("*.py"))
        for line, source, matches in matched(ast.parse(path.read_text(encoding="utf-8")))
        for _, text in WORDS
        # An expression that also matches nonsense of the same form does not look for these words.
        if matches(text) and not matches(re.sub(r"[A-Za-z]+", "zz", text))
    ]
    assert readers == []


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"re.compile(r'(\S+): created with (\d+) partitions')", "a.t: created with 3 partitions"),
        ("line.startswith('shop is published')", "shop is published at event 7."),
    ],
)
def test_a_module_that_reads_words_is_found(source: str, text: str) -> None:
    assert [bool(matches(text)) for _, _, matches in matched(ast.parse(source))] == [True]

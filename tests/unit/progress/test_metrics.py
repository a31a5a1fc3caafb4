"""Events of progress become metrics, which Airflow sends to its StatsD."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator

import pytest
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

from airflow_hive_federation.hooks.progress import task_observer
from airflow_hive_federation.progress import cycle_events as cev
from airflow_hive_federation.progress import events as ev
from airflow_hive_federation.progress.kinds import FileJob, Step
from airflow_hive_federation.progress.metrics import measured, measures_of


class StatsD:
    """As much of a StatsD client as Airflow calls: a datagram per metric."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect(address)

    def incr(self, stat: str, count: int = 1) -> None:
        self._socket.send(f"{stat}:{count}|c".encode())

    def gauge(self, stat: str, value: float) -> None:
        self._socket.send(f"{stat}:{value}|g".encode())

    def timing(self, stat: str, dt: float) -> None:
        self._socket.send(f"{stat}:{dt}|ms".encode())

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A socket to which Airflow sends its metrics."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.settimeout(30)
        client = StatsD(listening.getsockname())
        stats.initialize(factory=lambda: client, export_legacy_names=False)  # type: ignore[arg-type,return-value]
        yield listening
        stats.initialize(factory=get_stats_factory(), export_legacy_names=True)
        client.close()


def test_tasks_send_metrics_to_airflows_statsd(server: socket.socket) -> None:
    observe = task_observer(logging.getLogger("task"))
    observe(ev.TableDumped(table="shop.orders", files=3, size_bytes=70, partitions=0))
    observe(ev.TargetBehind(database="shop", events=4, seconds=2.5))
    observe(ev.Published(database="shop", event_id=7))
    assert [server.recv(200).decode() for _ in range(7)] == [
        "hive_federation.shop.tables_dumped:1|c",
        "hive_federation.shop.files_dumped:3|c",
        "hive_federation.shop.bytes_dumped:70|c",
        "hive_federation.shop.lag_events:4|g",
        "hive_federation.shop.lag_s:2.5|g",
        "hive_federation.shop.cycles:1|c",
        "hive_federation.shop.event_id:7|g",
    ]


class Recorded:
    """Keeps what it receives."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, float]] = []

    def incr(self, stat: str, count: int) -> None:
        self.lines.append((stat, count))

    def gauge(self, stat: str, value: float) -> None:
        self.lines.append((stat, value))

    def timing(self, stat: str, dt: float) -> None:
        self.lines.append((stat, dt))


def test_a_step_lasts_until_its_thread_begins_the_next_one_or_publishes() -> None:
    now_s = 10.0
    metrics = Recorded()
    observe = measured(metrics, clock=lambda: now_s)
    observe(ev.StepStarting(database="shop", step=Step.COPY_PLAN))
    now_s = 11.0
    other = threading.Thread(
        target=observe, args=[ev.StepStarting(database="shop", step=Step.CREATE, subject="orders")]
    )
    other.start()
    other.join()
    now_s = 12.0
    observe(ev.StepStarting(database="shop", step=Step.FOREIGN_KEYS, subject="orders"))
    now_s = 12.5
    observe(ev.Published(database="shop", event_id=7, earlier=True))
    observe(ev.Published(database="shop", event_id=7, earlier=True))
    assert metrics.lines == [
        ("hive_federation.shop.step.copy_plan", 2000.0),
        ("hive_federation.shop.step.foreign_keys", 500.0),
        ("hive_federation.shop.event_id", 7),
        ("hive_federation.shop.lag_bytes", 0),
        ("hive_federation.shop.event_id", 7),
        ("hive_federation.shop.lag_bytes", 0),
    ]


def test_a_follower_measures_its_lag_its_cycles_and_its_failures() -> None:
    metrics = Recorded()
    observe = measured(metrics)
    observe(cev.LagSeen(database="shop", events=3, seconds=1.5))
    observe(cev.CopyPlanned(database="shop", files=2, size_bytes=3000))
    observe(ev.Published(database="shop", event_id=7, files=2, size_bytes=3000, seconds=1.5))
    observe(
        cev.CycleFollowed(
            database="shop",
            cycle="increment",
            event_id=7,
            events=3,
            transactions=1,
            tables=1,
            files=2,
            size_bytes=3000,
            seconds=1.8,
            lag_s=2.1,
        )
    )
    observe(cev.CycleFailed(database="shop", error="No answer.", failures=1, pause_s=1.0))
    assert metrics.lines == [
        ("hive_federation.shop.lag_events", 3),
        ("hive_federation.shop.lag_s", 1.5),
        ("hive_federation.shop.lag_bytes", 3000),
        ("hive_federation.shop.cycles", 1),
        ("hive_federation.shop.bytes_copied", 3000),
        ("hive_federation.shop.event_id", 7),
        ("hive_federation.shop.lag_bytes", 0),
        ("hive_federation.shop.load_s", 1.5),
        ("hive_federation.shop.bytes_per_s", 2000.0),
        ("hive_federation.shop.cycle_s", 1.8),
        ("hive_federation.shop.published_lag_s", 2.1),
        ("hive_federation.shop.failures", 1),
    ]


def test_names_have_no_characters_that_statsd_would_misread() -> None:
    metrics = Recorded()
    observe = measured(metrics)
    observe(ev.LockContended(database="a:b|c", holder=""))
    observe(
        ev.FilesProcessed(job=FileJob.COPY, files=1, all_files=2, size_bytes=1, all_bytes=2, bytes_per_s=5.0)
    )
    assert metrics.lines == [
        ("hive_federation.a_b_c.locks_contended", 1),
        ("hive_federation.copy-files.bytes_per_s", 5.0),
    ]


@pytest.mark.parametrize(
    ("event", "counts", "gauges"),
    [
        (ev.TableLeftOut(table="shop.t", reason=""), {"tables_left_out": 1}, {}),
        (ev.TransactionsOpen(database="shop", transactions=(1, 2)), {}, {"open_transactions": 2}),
        (ev.TransactionsEnded(database="shop"), {}, {"open_transactions": 0}),
        (ev.TransactionsAborted(database="shop", transactions=(1, 2)), {"transactions_aborted": 2}, {}),
        (ev.FilesCopied(database="shop", files=5), {"files_copied": 5}, {}),
        (ev.TableCreated(table="shop.t", partitions=2), {"tables_created": 1, "partitions_created": 2}, {}),
        (ev.UpToDate(database="shop", event_id=9), {"idle_cycles": 1}, {"event_id": 9, "lag_bytes": 0}),
        (
            ev.ReplicaCompared(database="shop", tables=1, differences=2, unreadable=3),
            {"verifications": 1},
            {"differences": 2, "unreadable": 3},
        ),
        (ev.RepairStarting(database="shop", tables=("t",)), {"repairs": 1}, {}),
        (ev.FailedOver(database="shop", replica="r", event_id=1, policy="p"), {"failovers": 1}, {}),
        (ev.TakenOver(database="shop", event_id=1), {"take_overs": 1}, {}),
        (
            ev.RecordsIngested(table="shop.t", read_bytes=1, all_bytes=1, files=1, committed=8, seconds=2.0),
            {},
            {"ingested_records_per_s": 4.0},
        ),
        (ev.NothingChanged(database="shop", event_id=1), {}, {}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ev.Event) else "",
)
def test_the_metrics_of_an_event(event: ev.Event, counts: dict[str, int], gauges: dict[str, float]) -> None:
    measures = measures_of(event)
    assert (measures.counts, measures.gauges) == (counts, gauges)

"""Turns events of progress into metrics: counts, gauges and the durations of steps."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Protocol

from airflow_hive_federation.progress import cycle_events as cev
from airflow_hive_federation.progress import events as ev
from airflow_hive_federation.progress.observers import Observer

#: All metrics have names below this one.
PREFIX = "hive_federation"

#: Systems of metrics take no other characters in names.
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


class Metrics(Protocol):
    """Receives metrics; Airflow's ``Stats`` is such a receiver."""

    def incr(self, stat: str, count: int, /) -> None:
        """Add to a counter."""
        ...

    def gauge(self, stat: str, value: float, /) -> None:
        """Set a gauge."""
        ...

    def timing(self, stat: str, dt: float, /) -> None:
        """Record a duration, in milliseconds."""
        ...


@dataclass(frozen=True, kw_only=True)
class Measures:
    """The metrics of an event.

    :param subject: the database, or the table with its database, that they are about.
    :param counts: additions to counters, by name.
    :param gauges: values of gauges, by name.
    """

    subject: str
    counts: dict[str, int]
    gauges: dict[str, float]


def measured(metrics: Metrics, *, clock: Callable[[], float] = time.monotonic) -> Observer:
    """Return an observer that passes on the counts of events, and the duration of each step.

    A step lasts until its thread begins the next one, has created its table, or has published the target.

    :param metrics: receives ``hive_federation.<database>.<name>``.
    """
    running: dict[int, tuple[ev.StepStarting, float]] = {}

    def observe(event: ev.Event) -> None:
        if isinstance(event, ev.StepStarting | ev.TableCreated | ev.Published):
            now_s, thread = clock(), threading.get_ident()
            if thread in running:
                step, began_s = running.pop(thread)
                name = _name(step.database, f"step.{_UNFIT.sub('_', step.step.value)}")
                metrics.timing(name, (now_s - began_s) * 1000)
            if isinstance(event, ev.StepStarting):
                running[thread] = event, now_s
        measures = measures_of(event)
        for name, count in measures.counts.items():
            if count:
                metrics.incr(_name(measures.subject, name), count)
        for name, value in measures.gauges.items():
            metrics.gauge(_name(measures.subject, name), value)

    return observe


def _name(subject: str, name: str) -> str:
    database = _UNFIT.sub("_", subject.partition(".")[0])
    return f"{PREFIX}.{database}.{name}" if database else f"{PREFIX}.{name}"


def _measures(subject: str, *, gauges: dict[str, float] | None = None, **counts: int) -> Measures:
    return Measures(subject=subject, counts=counts, gauges=gauges or {})


@singledispatch
def measures_of(_event: ev.Event) -> Measures:
    """Return the metrics of an event; most events have none."""
    return _measures("")


@measures_of.register
def _table_dumped(event: ev.TableDumped) -> Measures:
    return _measures(
        event.table,
        tables_dumped=1,
        files_dumped=event.files,
        bytes_dumped=event.size_bytes,
        partitions_dumped=event.partitions,
    )


@measures_of.register
def _table_left_out(event: ev.TableLeftOut) -> Measures:
    return _measures(event.table, tables_left_out=1)


@measures_of.register
def _transactions_open(event: ev.TransactionsOpen) -> Measures:
    return _measures(event.database, gauges={"open_transactions": len(event.transactions)})


@measures_of.register
def _transactions_ended(event: ev.TransactionsEnded) -> Measures:
    return _measures(event.database, gauges={"open_transactions": 0})


@measures_of.register
def _transactions_aborted(event: ev.TransactionsAborted) -> Measures:
    return _measures(event.database, transactions_aborted=len(event.transactions))


@measures_of.register
def _lock_contended(event: ev.LockContended) -> Measures:
    return _measures(event.database, locks_contended=1)


@measures_of.register
def _files_processed(event: ev.FilesProcessed) -> Measures:
    return _measures(event.job.value, gauges={"bytes_per_s": event.bytes_per_s})


@measures_of.register
def _files_copied(event: ev.FilesCopied) -> Measures:
    return _measures(event.database, files_copied=event.files)


@measures_of.register
def _table_created(event: ev.TableCreated) -> Measures:
    return _measures(event.table, tables_created=1, partitions_created=event.partitions)


@measures_of.register
def _published(event: ev.Published) -> Measures:
    gauges: dict[str, float] = {"event_id": event.event_id, "lag_bytes": 0}
    if event.seconds:
        gauges |= {"load_s": event.seconds, "bytes_per_s": event.size_bytes / event.seconds}
    return _measures(
        event.database, gauges=gauges, cycles=int(not event.earlier), bytes_copied=event.size_bytes
    )


@measures_of.register
def _copy_planned(event: cev.CopyPlanned) -> Measures:
    return _measures(event.database, gauges={"lag_bytes": event.size_bytes})


@measures_of.register
def _lag_seen(event: cev.LagSeen) -> Measures:
    return _measures(event.database, gauges={"lag_events": event.events, "lag_s": event.seconds})


@measures_of.register
def _cycle_followed(event: cev.CycleFollowed) -> Measures:
    return _measures(event.database, gauges={"cycle_s": event.seconds, "published_lag_s": event.lag_s})


@measures_of.register
def _cycle_failed(event: cev.CycleFailed) -> Measures:
    return _measures(event.database, failures=1)


@measures_of.register
def _up_to_date(event: ev.UpToDate) -> Measures:
    return _measures(event.database, gauges={"event_id": event.event_id, "lag_bytes": 0}, idle_cycles=1)


@measures_of.register
def _replica_compared(event: ev.ReplicaCompared) -> Measures:
    gauges = {"differences": float(event.differences), "unreadable": float(event.unreadable)}
    return _measures(event.database, gauges=gauges, verifications=1)


@measures_of.register
def _repair_starting(event: ev.RepairStarting) -> Measures:
    return _measures(event.database, repairs=1)


@measures_of.register
def _failed_over(event: ev.FailedOver) -> Measures:
    return _measures(event.database, failovers=1)


@measures_of.register
def _taken_over(event: ev.TakenOver) -> Measures:
    return _measures(event.database, take_overs=1)


@measures_of.register
def _target_behind(event: ev.TargetBehind) -> Measures:
    return _measures(event.database, gauges={"lag_events": event.events, "lag_s": event.seconds})


@measures_of.register
def _records_ingested(event: ev.RecordsIngested) -> Measures:
    return _measures(event.table, gauges={"ingested_records_per_s": event.records_per_s})

"""Provides the observers of progress, and the two ways in which long work reports to them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from airflow_hive_federation.progress.events import Event, FilesProcessed, PartitionsCounted, StepStarting
from airflow_hive_federation.progress.kinds import Activity, Step
from airflow_hive_federation.progress.words import words

T = TypeVar("T")

#: The attribute of a log record that holds the record's event.
RECORD_EVENT = "hive_federation_event"

logger = logging.getLogger(__name__)

#: Seconds between two counts of the same work.
_EVERY_S = 30.0


class Observer(Protocol):
    """Receives the events of a piece of work, in their order; several threads may call it at once."""

    def __call__(self, event: Event, /) -> None:
        """Take an event; an error that this raises ends the work, as a killed process would."""
        ...


def log_lines(log: logging.Logger, *, level: int | None = None) -> Observer:
    """Return an observer that logs the words of each event; the log records hold the events themselves.

    :param level: the level of all lines, instead of the events' own.
    """

    def observe(event: Event) -> None:
        log.log(level or event.level, "%s", words(event), extra={RECORD_EVENT: event})

    return observe


#: Logs each event; the observer of all work for which the caller names no other.
LOGGED: Observer = log_lines(logger)
#: Logs each event, for developers only.
LOGGED_QUIETLY: Observer = log_lines(logger, level=logging.DEBUG)


def unobserved(_event: Event) -> None:
    """Take an event and do nothing."""


def spaced(
    observer: Observer, *, every_s: float = _EVERY_S, clock: Callable[[], float] = time.monotonic
) -> Observer:
    """Return an observer that passes on an interim count at most once per interval, and all other events.

    The count of all files of a job is its last one, and is passed on.
    """
    passed_s: dict[type[Event], float] = {}

    def observe(event: Event) -> None:
        now_s = clock()
        if event.interim and not _is_last(event):
            if now_s - passed_s.setdefault(type(event), now_s) < every_s:
                return
            passed_s[type(event)] = now_s
        observer(event)

    return observe


def _is_last(event: Event) -> bool:
    return isinstance(event, FilesProcessed) and event.files == event.all_files


class Steps:
    """Announces the steps of a piece of work, each after a check that the work may go on.

    :param database: the database that the steps change.
    :param check: raises an error if the work must end.
    """

    def __init__(self, observer: Observer, database: str, check: Callable[[], None] = lambda: None) -> None:
        self._observer = observer
        self._database = database
        self._check = check

    def __call__(self, step: Step, subject: str | int = "") -> None:
        """Announce a step, before it begins."""
        self._check()
        self._observer(StepStarting(database=self._database, step=step, subject=str(subject)))


def counted(
    items: Iterable[T],
    table: str,
    activity: Activity,
    observer: Observer,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[T]:
    """Yield a table's partitions, and report twice per minute their number so far.

    :param table: the name of the table.
    """
    began_s = reported_s = clock()
    for count, item in enumerate(items, 1):
        yield item
        now_s = clock()
        if now_s - reported_s >= _EVERY_S:
            reported_s = now_s
            observer(
                PartitionsCounted(table=table, activity=activity, partitions=count, seconds=now_s - began_s)
            )

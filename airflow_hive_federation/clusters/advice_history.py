"""Stores the history of routed statements as JSON lines, below a cluster's root or in another directory.

Every writer has its own file, in the directory of the day on which it began, so that writers never conflict.
Each statement rewrites the file, under a hidden name first, because object stores cannot append. The first
writer of a day removes the records of days that are older than :data:`KEPT_DAYS`.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from airflow_hive_federation.clusters.advice_records import StatementRecord, record_from_json, record_of
from airflow_hive_federation.clusters.placement import Session
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.clusters.routing.decision import Decision
from airflow_hive_federation.clusters.running import LiveRouter
from airflow_hive_federation.errors import FileVanishedError, RoutingError, StorageError
from airflow_hive_federation.storage.empty_directories import remove_empty_directory
from airflow_hive_federation.storage.filesystem import join, open_filesystem, reading, storage_errors
from airflow_hive_federation.storage.listing import list_directory
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.publishing import (
    TEMPORARY_PREFIX,
    remove_file,
    write_atomically,
)

log = logging.getLogger(__name__)

#: The number of days of history that are kept.
KEPT_DAYS = 30
#: The largest number of statements that one writer records.
MAX_RECORDS = 1000
#: The largest number of bytes that are read of one line.
MAX_LINE = 1 << 20
_THREADS = 8
_SUFFIX = ".jsonl"
#: The names of a writer's file, finished or not.
_RECORDS = re.compile(rf"({re.escape(TEMPORARY_PREFIX)})?[0-9a-f]{{32}}\.jsonl(?(1)\.0-[0-9a-f]{{12}})")


def history_directory(registry: ClusterRegistry, directory: str | None = None) -> str:
    """Return the directory of the history: the given one, or one below the root of the default cluster.

    :raises UnknownClusterError: no directory is given, and no cluster is configured.
    """
    return directory or join(registry.default_cluster().root, "_hive_federation", "history")


@dataclass(kw_only=True)
class HistoryWriter:
    """Writes the records of one run.

    :param directory: the URI of the history's directory.
    :param run: the run of the records; a retry of a task has the run of the first try.
    :param source: the task, or the program.
    :param now: returns the present time, in UTC.
    """

    directory: str
    run: str
    source: str
    options: StorageOptions | None = field(default=None, repr=False)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _lines: list[bytes] = field(default_factory=list, repr=False)
    _uri: str = ""
    _failed: bool = False

    def note(self, text: str, session: Session, decision: Decision) -> None:
        """Record a statement. A history that cannot be written stops no statement; the log has the reason."""
        if self._failed or len(self._lines) >= MAX_RECORDS:
            return
        now = self.now()
        # The day is that of the router, which uses the local time zone.
        day = now.astimezone().date()
        record = record_of(text, session, decision, time=now, day=day, run=self.run, source=self.source)
        if record is None:
            return
        self._lines.append(json.dumps(record.to_json(), ensure_ascii=False).encode() + b"\n")
        try:
            if not self._uri:
                self._begin(now)
            write_atomically(self._uri, self._lines, self.options)
        except StorageError as error:
            self._failed = True
            log.warning("The history of routed statements is not written: %s", error)

    def _begin(self, now: datetime) -> None:
        today = now.date()
        if today.isoformat() not in _days(self.directory, self.options):
            remove_old_history(self.directory, today - timedelta(days=KEPT_DAYS), self.options)
        self._uri = join(self.directory, today.isoformat(), f"{uuid.uuid4().hex}{_SUFFIX}")


@dataclass(frozen=True, kw_only=True)
class RecordingRouter(LiveRouter):
    """A router that records its decisions.

    :param history: the writer of the records; with ``None``, nothing is recorded.
    """

    history: HistoryWriter | None = None

    def route(self, text: str, session: Session) -> Decision:
        """Route a statement as :meth:`.LiveRouter.route` does, and record it."""
        try:
            decision = super().route(text, session)
        except RoutingError as error:
            refused = error.facts.get("decision")
            if self.history is not None and isinstance(refused, Decision):
                self.history.note(text, session, refused)
            raise
        if self.history is not None:
            self.history.note(text, session, decision)
        return decision


@dataclass(frozen=True, kw_only=True)
class History:
    """The records of a period.

    :param records: the records, in no particular order.
    :param damaged: the lines that are no records, as ``file:line: reason``.
    """

    records: tuple[StatementRecord, ...] = ()
    damaged: tuple[str, ...] = ()


def read_history(directory: str, since: datetime, options: StorageOptions | None = None) -> History:
    """Read the records of a history since a moment; a missing directory has none.

    :param directory: the URI of the history's directory.
    :raises StorageError: a directory or file cannot be read.
    """
    # A writer's file lies in the directory of the day on which the writer began.
    first = (since.astimezone(UTC) - timedelta(days=1)).date().isoformat()
    days = [day for day in _days(directory, options) if day >= first]
    uris = [
        join(directory, day, name)
        for day in sorted(days)
        for name in sorted(list_directory(join(directory, day), options=options))
        if name.endswith(_SUFFIX) and not name.startswith((".", "_"))
    ]
    records: list[StatementRecord] = []
    damaged: list[str] = []
    with ThreadPoolExecutor(_THREADS) as pool:
        for uri, lines in zip(uris, pool.map(lambda uri: _lines_of(uri, options), uris), strict=True):
            for number, line in enumerate(lines, 1):
                try:
                    record = record_from_json(line)
                except ValueError as error:
                    damaged.append(f"{uri}:{number}: {error}")
                    continue
                if record.time >= since:
                    records.append(record)
    return History(records=tuple(records), damaged=tuple(damaged))


def remove_old_history(directory: str, before: date, options: StorageOptions | None = None) -> list[str]:
    """Remove the records of the days before a day, and nothing else.

    The user chooses the directory of a history, so that its directories of days may also hold other files.

    :param directory: the URI of the history's directory.
    :return: the directories that are gone, because nothing else was in them.
    :raises StorageError: a record or directory cannot be removed.
    """
    removed = []
    for day in sorted(_days(directory, options)):
        if day < before.isoformat():
            uri = join(directory, day)
            for name in list_directory(uri, options=options):
                if _RECORDS.fullmatch(name):
                    remove_file(join(uri, name), options)
            if remove_empty_directory(uri, options):
                removed.append(uri)
    return removed


def _days(directory: str, options: StorageOptions | None) -> Iterator[str]:
    filesystem, path = open_filesystem(directory, options)
    try:
        with storage_errors(directory):
            filesystem.invalidate_cache(path)
            names = [
                str(path_of_day).rstrip("/").rpartition("/")[2]
                for path_of_day in filesystem.ls(path, detail=False)
            ]
    except FileVanishedError:
        return
    for name in names:
        try:
            if date.fromisoformat(name).isoformat() == name:
                yield name
        except ValueError:
            continue


def _lines_of(uri: str, options: StorageOptions | None) -> list[bytes]:
    try:
        with reading(uri, options) as file:
            return _lines(file)
    except FileVanishedError:
        return []  # a writer has removed an old day


def _lines(file: Any) -> list[bytes]:
    lines: list[bytes] = []
    while len(lines) < MAX_RECORDS and (line := file.readline(MAX_LINE)):
        lines.append(line)
    return lines

"""Defines and publishes the state of remotes: the local names of tables and databases that lie elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_hive_federation.model.json_values import map_of, reader_of, text
from airflow_hive_federation.published.directory import StateDirectory, Subject, key_of
from airflow_hive_federation.published.documents import Publisher, read_publisher, reading_version
from airflow_hive_federation.published.folding import shortened

if TYPE_CHECKING:
    from airflow_hive_federation.remotes.reports import RefreshReport

#: Folder of the documents about remotes.
REMOTES = "remotes"
#: The most tables that are named with the reasons for which they were left out.
_SKIPPED = 50
_REASON = 300


@dataclass(frozen=True, kw_only=True)
class RemoteState:
    """The state of one remote.

    :param metastore: the connection, or the URIs, of the local metastore.
    :param remote: the local name of the remote.
    :param kind: ``table`` or ``database``.
    :param points_to: the name at the remote's metastore; empty while it is unknown.
    :param via: the factory by which the remote is reached.
    :param event_id: last event of the remote that the link contains; -1 for a catalog without events.
    :param created: number of tables that the last refresh created; ``altered``, ``dropped`` and
        ``partitions`` likewise, which were added, altered or dropped.
    :param gone: number of tables that the remote has dropped and whose links were kept.
    :param skipped: the first tables that were left out, with the reasons; ``skipped_total`` counts all.
    :param refreshed_s: the last refresh, in seconds since 1970; ``None`` before the first.
    :param changed_s: the last refresh that changed anything.
    :param is_dropped: the remote was dropped.
    :param error: the class and the message of the error of the last refresh; empty if it succeeded.
    :param failures: number of refreshes that have failed since the last one that succeeded.
    """

    metastore: str
    remote: str
    kind: str
    points_to: str = ""
    via: str = ""
    event_id: int = -1
    created: int = 0
    altered: int = 0
    dropped: int = 0
    partitions: int = 0
    gone: int = 0
    skipped: Mapping[str, str] = field(default_factory=dict)
    skipped_total: int = 0
    refreshed_s: float | None = None
    changed_s: float | None = None
    is_dropped: bool = False
    error: str = ""
    remedy: str = ""
    failures: int = 0
    published_s: float
    by: Publisher = field(default_factory=Publisher)


read_remote: Callable[[object], RemoteState] = reading_version(
    reader_of(RemoteState, readers={"by": read_publisher, "skipped": map_of(text, text)})
)
REMOTE: Subject[RemoteState] = Subject("state", read_remote)


def refreshed(before: RemoteState, report: RefreshReport, now_s: float) -> RemoteState:
    """Return the state after a refresh that succeeded. Pure."""
    partitions = report.partitions_added + report.partitions_altered + report.partitions_dropped
    named = sorted(report.skipped)[:_SKIPPED]
    return replace(
        before,
        event_id=report.event_id,
        created=len(report.created),
        altered=len(report.altered),
        dropped=len(report.dropped),
        partitions=partitions,
        gone=len(report.gone),
        skipped={name: shortened(report.skipped[name], _REASON) for name in named},
        skipped_total=len(report.skipped),
        refreshed_s=now_s,
        changed_s=now_s if report.changed else before.changed_s,
        is_dropped=False,
        error="",
        remedy="",
        failures=0,
    )


class RemotePublisher:
    """Publishes what a task or command has learned about one remote.

    Every method raises a ``StorageError`` if the document cannot be written.

    :param metastore: the connection, or the URIs, of the local metastore.
    :param by: the task or command.
    """

    def __init__(
        self, directory: StateDirectory, *, metastore: str, remote: str, kind: str, by: Publisher
    ) -> None:
        self._directory = directory
        self._new = RemoteState(metastore=metastore, remote=remote, kind=kind, published_s=0.0)
        self._key = key_of(remote, metastore, kind)
        self._by = by

    def refresh(self, report: RefreshReport, *, points_to: str, via: str) -> None:
        """Publish a refresh.

        :param points_to: the name at the remote's metastore.
        :param via: the factory by which the remote is reached.
        """
        self._write(
            lambda before, now_s: replace(refreshed(before, report, now_s), points_to=points_to, via=via)
        )

    def failure(self, error: str, remedy: str) -> None:
        """Publish a refresh that failed.

        :param error: the class and the message of the error.
        """
        self._write(
            lambda before, _: replace(
                before, error=shortened(error), remedy=shortened(remedy), failures=before.failures + 1
            )
        )

    def drop(self) -> None:
        """Publish that the remote was dropped."""
        self._write(lambda before, _: replace(before, is_dropped=True, error="", remedy="", failures=0))

    def _write(self, fold: Callable[[RemoteState, float], RemoteState]) -> None:
        now_s = round(time.time(), 3)
        before = self._directory.readable(REMOTES, self._key, REMOTE) or self._new
        after = replace(fold(before, now_s), published_s=now_s, by=self._by)
        self._directory.write(REMOTES, self._key, REMOTE, after)

"""Defines and publishes the state of streaming ingest and of compaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_hive_federation.model.json_values import list_of, map_of, or_none, reader_of, text, whole
from airflow_hive_federation.published.directory import StateDirectory, Subject, key_of
from airflow_hive_federation.published.documents import Publisher, read_publisher, reading_version
from airflow_hive_federation.published.folding import shortened

if TYPE_CHECKING:
    from airflow_hive_federation.compaction.queue import QueueLook
    from airflow_hive_federation.compaction.worker import CompactionReport
    from airflow_hive_federation.ingest.runs import IngestReport

#: Folders of the documents.
INGEST, COMPACTION = "ingest", "compaction"
#: The most waiting requests, and the most finished ones, that are kept.
_WAITING, _FINISHED = 500, 200
_MESSAGE = 500


@dataclass(frozen=True, kw_only=True)
class IngestState:
    """The last run of streaming ingest into one table from one source.

    :param metastore: the connection of the metastore.
    :param table: ``database.table``.
    :param source: ``files``, or the connection that was queried.
    :param records: number of records that the last run committed; ``files``, ``transactions`` and
        ``dead_letters`` likewise.
    :param position: the last committed position.
    :param ended_s: the end of the last run that succeeded, in seconds since 1970.
    :param error: the class and the message of the error of the last run; empty if it succeeded.
    :param failures: number of runs that have failed since the last one that succeeded.
    """

    metastore: str
    table: str
    source: str
    records: int = 0
    files: int = 0
    transactions: int = 0
    dead_letters: int = 0
    seconds: float = 0.0
    position: str = ""
    ended_s: float | None = None
    error: str = ""
    remedy: str = ""
    failures: int = 0
    published_s: float
    by: Publisher = field(default_factory=Publisher)


@dataclass(frozen=True, kw_only=True)
class QueuedCompaction:
    """A request of the compaction queue that is not served yet; see ``compaction.queue.WaitingRequest``."""

    table: str
    partition: str
    kind: str
    state: str
    since_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class FinishedCompaction:
    """A request that a worker has served; see ``compaction.worker.CompactionReport``."""

    table: str
    partition: str
    kind: str
    state: str
    message: str = ""
    rows: int = 0
    deleted: int = 0
    size_bytes: int = 0
    seconds: float = 0.0
    ended_s: float


@dataclass(frozen=True, kw_only=True)
class CompactionState:
    """The compaction queue and the transactions of one metastore, as a worker saw them.

    :param metastore: the connection of the metastore.
    :param states: number of requests per state; ``None`` if the queue could not be read.
    :param waiting: the first requests that are not served yet.
    :param waiting_total: number of all of them.
    :param finished: the last requests that workers of this package have served, oldest first.
    :param oldest_open_s: the time at which the oldest open transaction began, in seconds since 1970.
    :param oldest_heartbeat_s: the earliest last heartbeat of the open ones.
    """

    metastore: str
    states: Mapping[str, int] | None = None
    waiting: tuple[QueuedCompaction, ...] = ()
    waiting_total: int = 0
    open_txns: int = 0
    aborted_txns: int = 0
    oldest_open_s: float | None = None
    oldest_heartbeat_s: float | None = None
    finished: tuple[FinishedCompaction, ...] = ()
    published_s: float
    by: Publisher = field(default_factory=Publisher)


read_ingest: Callable[[object], IngestState] = reading_version(
    reader_of(IngestState, readers={"by": read_publisher})
)
read_compaction: Callable[[object], CompactionState] = reading_version(
    reader_of(
        CompactionState,
        readers={
            "by": read_publisher,
            "states": or_none(map_of(text, whole)),
            "waiting": list_of(reader_of(QueuedCompaction)),
            "finished": list_of(reader_of(FinishedCompaction)),
        },
    )
)
INGESTED: Subject[IngestState] = Subject("state", read_ingest)
COMPACTED: Subject[CompactionState] = Subject("state", read_compaction)


class IngestPublisher:
    """Publishes the runs of ingest into one table.

    Every method raises a ``StorageError`` if the document cannot be written.

    :param source: ``files``, or the connection that is queried.
    """

    def __init__(
        self, directory: StateDirectory, *, metastore: str, table: str, source: str, by: Publisher
    ) -> None:
        self._directory = directory
        self._new = IngestState(metastore=metastore, table=table, source=source, published_s=0.0)
        self._key = key_of(table, metastore, source)
        self._by = by

    def run(self, report: IngestReport) -> None:
        """Publish a run that succeeded."""
        now_s = _now_s()
        self._write(
            replace(
                self._new,
                records=report.records,
                files=report.files,
                transactions=report.transactions,
                dead_letters=report.dead_letters,
                seconds=round(report.seconds, 1),
                position=shortened(report.position or "", _MESSAGE),
                ended_s=now_s,
            ),
            now_s,
        )

    def failure(self, error: str, remedy: str) -> None:
        """Publish a run that failed.

        :param error: the class and the message of the error.
        """
        before = self._directory.readable(INGEST, self._key, INGESTED) or self._new
        failed = replace(
            before, error=shortened(error), remedy=shortened(remedy), failures=before.failures + 1
        )
        self._write(failed, _now_s())

    def _write(self, state: IngestState, now_s: float) -> None:
        self._directory.write(INGEST, self._key, INGESTED, replace(state, published_s=now_s, by=self._by))


def publish_compactions(
    directory: StateDirectory,
    metastore: str,
    look: QueueLook | None,
    reports: Sequence[CompactionReport],
    by: Publisher,
) -> None:
    """Publish the queue of a metastore, and the requests that a worker has served since its last publication.

    :param metastore: the connection of the metastore.
    :param look: the queue; ``None`` leaves the one before.
    :raises StorageError: the document cannot be written.
    """
    key, now_s = key_of(metastore), _now_s()
    before = directory.readable(COMPACTION, key, COMPACTED)
    before = before or CompactionState(metastore=metastore, published_s=now_s)
    finished = (*before.finished, *(_finished(report, now_s) for report in reports))
    state = replace(before, finished=finished[-_FINISHED:], published_s=now_s, by=by)
    if look is not None:
        state = replace(
            state,
            states=dict(look.states),
            waiting=tuple(QueuedCompaction(**asdict(request)) for request in look.waiting[:_WAITING]),
            waiting_total=len(look.waiting),
            open_txns=look.open_txns,
            aborted_txns=look.aborted_txns,
            oldest_open_s=look.oldest_open_s,
            oldest_heartbeat_s=look.oldest_heartbeat_s,
        )
    directory.write(COMPACTION, key, COMPACTED, state)


def _finished(report: CompactionReport, now_s: float) -> FinishedCompaction:
    return FinishedCompaction(
        table=report.table,
        partition=report.partition,
        kind=report.kind,
        state=report.state,
        message=shortened(report.message, _MESSAGE),
        rows=report.rows,
        deleted=report.deleted,
        size_bytes=report.size_bytes,
        seconds=round(report.seconds, 1),
        ended_s=now_s,
    )


def _now_s() -> float:
    return round(time.time(), 3)

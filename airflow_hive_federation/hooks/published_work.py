"""Lets tasks and commands of ingest and compaction publish their state, for the page in Airflow."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from airflow_hive_federation.hooks.published import (
    Log,
    StatePublished,
    described,
    publication,
    state_directory,
)

if TYPE_CHECKING:
    from airflow_hive_federation.compaction.worker import CompactionReport
    from airflow_hive_federation.ingest.runs import IngestReport
    from airflow_hive_federation.metastore import MetastoreClient
    from airflow_hive_federation.published.documents import Publisher
    from airflow_hive_federation.published.work import IngestPublisher

#: Seconds between two publications of a worker that serves one request after the other.
_EVERY_S = 30.0


class IngestStatePublished(StatePublished):
    """Publishes the run of a block, or the error with which it ends, which it lets pass.

    :param metastore: the connection, or the URIs, of the metastore.
    :param source: ``files``, or the connection that is queried.
    :param by: the task or command.
    """

    def __init__(self, *, metastore: str, table: str, source: str, by: Publisher, log: Log) -> None:
        super().__init__(log)
        self._metastore = metastore
        self._table = table
        self._source = source
        self._by = by

    def _failed(self, error: Exception) -> None:
        self._publisher().failure(*described(error))

    def ended(self, report: IngestReport) -> None:
        """Publish a run that succeeded."""
        with publication(self._log):
            self._publisher().run(report)

    def _publisher(self) -> IngestPublisher:
        from airflow_hive_federation.published.work import IngestPublisher

        return IngestPublisher(
            state_directory(),
            metastore=self._metastore,
            table=self._table.lower(),
            source=self._source,
            by=self._by,
        )


class CompactionStatePublished:
    """Publishes the queue of a metastore while a worker serves it, and the requests that it has served.

    :param metastore: the connection, or the URIs, of the metastore.
    :param client: opens a client of it.
    :param by: the task or command.
    """

    def __init__(
        self,
        *,
        metastore: str,
        client: Callable[[], AbstractContextManager[MetastoreClient]],
        by: Publisher,
        log: Log,
    ) -> None:
        self._metastore = metastore
        self._client = client
        self._by = by
        self._log = log
        self._unpublished: list[CompactionReport] = []
        self._last_s = time.monotonic()

    def served(self, report: CompactionReport) -> None:
        """Note a request; publish if the last publication is half a minute ago."""
        self._unpublished.append(report)
        if time.monotonic() - self._last_s >= _EVERY_S:
            self.publish()

    @property
    def has_unpublished(self) -> bool:
        """Return whether requests were served since the last publication."""
        return bool(self._unpublished)

    def publish(self) -> None:
        """Publish the present queue, and the requests that were served since the last publication."""
        from airflow_hive_federation.compaction.queue import look_at_queue
        from airflow_hive_federation.published.work import publish_compactions

        look = None
        with publication(self._log), self._client() as client:
            look = look_at_queue(client)
        with publication(self._log):
            publish_compactions(state_directory(), self._metastore, look, self._unpublished, self._by)
        self._unpublished = []
        self._last_s = time.monotonic()

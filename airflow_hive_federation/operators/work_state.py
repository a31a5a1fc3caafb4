"""Lets tasks of ingest and compaction publish their state, for the page in Airflow."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.published import (
    Log,
    StatePublished,
    described,
    publication,
    publisher_of,
    state_directory,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.compaction.worker import CompactionReport
    from airflow_hive_federation.ingest.runs import IngestReport
    from airflow_hive_federation.published.work import IngestPublisher

#: Seconds between two publications of a worker that serves one request after the other.
_EVERY_S = 30.0


class IngestStatePublished(StatePublished):
    """Publishes the run of a block, or the error with which it ends, which it lets pass.

    :param source: ``files``, or the connection that is queried.
    """

    def __init__(self, *, metastore: str, table: str, source: str, context: Context, log: Log) -> None:
        super().__init__(log)
        self._metastore = metastore
        self._table = table
        self._source = source
        self._context = context

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
            by=publisher_of(self._context),
        )


class CompactionStatePublished:
    """Publishes the queue of a metastore while a worker serves it, and the requests that it has served."""

    def __init__(self, hook: HiveMetastoreHook, context: Context, log: Log) -> None:
        self._hook = hook
        self._by = publisher_of(context)
        self._log = log
        self._unpublished: list[CompactionReport] = []
        self._last_s = time.monotonic()

    def served(self, report: CompactionReport) -> None:
        """Note a request; publish if the last publication is half a minute ago."""
        self._unpublished.append(report)
        if time.monotonic() - self._last_s >= _EVERY_S:
            self.publish()

    def publish(self) -> None:
        """Publish the present queue, and the requests that were served since the last publication."""
        from airflow_hive_federation.compaction.queue import look_at_queue
        from airflow_hive_federation.published.work import publish_compactions

        look = None
        with publication(self._log), self._hook.client() as client:
            look = look_at_queue(client)
        with publication(self._log):
            conn_id = self._hook.metastore_conn_id
            publish_compactions(state_directory(), conn_id, look, self._unpublished, self._by)
        self._unpublished = []
        self._last_s = time.monotonic()

"""Waits in the triggerer for the sensors of remotes, and watches remotes for assets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.hooks.error_translation import error_text
from airflow_hive_federation.hooks.remotes import remotes_of

if TYPE_CHECKING:
    from airflow_hive_federation.remotes.probes import Look


class RemoteTrigger(BaseTrigger):
    """Queries a remote until it has changed or has a partition, or until the deadline has passed.

    It yields once, whatever the state of the remote is afterwards: a later wait begins after a refresh of the
    link, and waits for the next change.

    :param metastore_conn_id: the connection of the local metastore.
    :param database: the database of a table whose name contains none.
    :param remote: the local name.
    :param kind: ``table`` or ``database``.
    :param partition: the name of a partition.
    :param where: a condition on partition keys; with neither, it waits for a change.
    :param poll_s: seconds between two queries.
    :param deadline_s: the end of the wait, in seconds since 1970.
    """

    def __init__(
        self,
        *,
        metastore_conn_id: str,
        database: str,
        remote: str,
        kind: str,
        partition: str | None,
        where: str | None = None,
        poll_s: float,
        deadline_s: float,
    ) -> None:
        super().__init__()
        self.metastore_conn_id = metastore_conn_id
        self.database = database
        self.remote = remote
        self.kind = kind
        self.partition = partition
        self.where = where
        self.poll_s = poll_s
        self.deadline_s = deadline_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the trigger in the form in which the scheduler passes it to the triggerer."""
        names = (
            "metastore_conn_id",
            "database",
            "remote",
            "kind",
            "partition",
            "where",
            "poll_s",
            "deadline_s",
        )
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {name: getattr(self, name) for name in names},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: ``happened``, ``timeout`` or ``error``."""
        while time.time() < self.deadline_s:
            try:
                happened = await asyncio.to_thread(self._happened)
            except HiveFederationError as error:
                if not error.retryable:
                    yield TriggerEvent({"state": "error", "message": error_text(error), "retryable": False})
                    return
                self.log.warning("Asking again: %s", error)
            else:
                if happened:
                    yield TriggerEvent({"state": "happened"})
                    return
            await asyncio.sleep(min(self.poll_s, max(0.0, self.deadline_s - time.time())))
        yield TriggerEvent({"state": "timeout"})

    def _happened(self) -> bool:
        from airflow_hive_federation.remotes.probes import happened
        from airflow_hive_federation.remotes.statement import Kind, parse_name

        kind = Kind(self.kind)
        name = parse_name(kind, self.remote)
        with remotes_of(self.metastore_conn_id, database=self.database) as remotes:
            return happened(remotes, kind, name, partition=self.partition, where=self.where)


class RemoteChangesTrigger(BaseEventTrigger):
    """Yields an event per change of a remote, for the ``AssetWatcher`` of an asset that schedules a sync DAG.

    It is edge-triggered: it yields a change once, and not again while the refresh is pending. If the remote
    has no events, it yields the next change only after a refresh of the link. It retries a remote that does
    not answer, because a watcher has no task to fail.

    :param metastore_conn_id: the connection of the local metastore.
    :param remote: the local name.
    :param kind: ``table`` or ``database``.
    :param database: the database of a table whose name contains none.
    :param poll_s: seconds between two queries.
    """

    def __init__(
        self,
        *,
        metastore_conn_id: str,
        remote: str,
        kind: str = "database",
        database: str = "default",
        poll_s: float = 30.0,
    ) -> None:
        super().__init__()
        self.metastore_conn_id = metastore_conn_id
        self.remote = remote
        self.kind = kind
        self.database = database
        self.poll_s = poll_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the trigger in the form in which the scheduler passes it to the triggerer."""
        names = ("metastore_conn_id", "remote", "kind", "database", "poll_s")
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {name: getattr(self, name) for name in names},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event per change, with ``remote`` and ``event_id``, for ever."""
        before: Look | None = None
        while True:
            try:
                state = await asyncio.to_thread(self._look, before)
            except HiveFederationError as error:
                self.log.warning("Asking again: %s", error)
            else:
                reported = before is not None and before.changed and state.event_id is None
                if state.changed and not reported:
                    yield TriggerEvent({"remote": self.remote, "event_id": state.event_id})
                before = state
            await asyncio.sleep(self.poll_s)

    def _look(self, before: Look | None) -> Look:
        from airflow_hive_federation.remotes.probes import look
        from airflow_hive_federation.remotes.statement import Kind, parse_name

        kind = Kind(self.kind)
        with remotes_of(self.metastore_conn_id, database=self.database) as remotes:
            after = None if before is None else before.event_id
            return look(remotes, kind, parse_name(kind, self.remote), after=after)

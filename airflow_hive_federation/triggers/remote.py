"""The triggerer's side of the sensors of remotes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.hooks.failing import error_text
from airflow_hive_federation.hooks.remotes import remotes_of

if TYPE_CHECKING:
    from airflow_hive_federation.remotes.probes import Look


class RemoteTrigger(BaseTrigger):
    """Asks a remote until it has changed, or has a partition, or the deadline has passed.

    It yields once, whatever the state of the remote is after it: whoever waits again has refreshed the link,
    and waits for the next change.

    :param metastore_conn_id: connection of the local metastore.
    :param database: database of a table that is named without one.
    :param remote: local name.
    :param kind: ``table`` or ``database``.
    :param partition: name of a partition.
    :param where: condition on partition keys; without either it waits for a change.
    :param poll_s: seconds between two questions.
    :param deadline_s: end of the wait, in seconds since 1970.
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
        """How the scheduler hands the trigger to the triggerer."""
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
    """Tells of each change of a remote, for an ``AssetWatcher``: a DAG that is scheduled on its asset syncs.

    It is edge-triggered: a change is told once, not while its refresh is still to come. Where the remote has
    no events, it is told again only after the link was refreshed. A remote that does not answer is asked
    again: a watcher has nobody to fail to.

    :param metastore_conn_id: connection of the local metastore.
    :param remote: local name.
    :param kind: ``table`` or ``database``.
    :param database: database of a table that is named without one.
    :param poll_s: seconds between two questions.
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
        """How the scheduler hands the trigger to the triggerer."""
        names = ("metastore_conn_id", "remote", "kind", "database", "poll_s")
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {name: getattr(self, name) for name in names},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event a change, with ``remote`` and ``event_id``, for ever."""
        before: Look | None = None
        while True:
            try:
                seen = await asyncio.to_thread(self._look, before)
            except HiveFederationError as error:
                self.log.warning("Asking again: %s", error)
            else:
                told = before is not None and before.changed and seen.event_id is None
                if seen.changed and not told:
                    yield TriggerEvent({"remote": self.remote, "event_id": seen.event_id})
                before = seen
            await asyncio.sleep(self.poll_s)

    def _look(self, before: Look | None) -> Look:
        from airflow_hive_federation.remotes.probes import look
        from airflow_hive_federation.remotes.statement import Kind, parse_name

        kind = Kind(self.kind)
        with remotes_of(self.metastore_conn_id, database=self.database) as remotes:
            after = None if before is None else before.event_id
            return look(remotes, kind, parse_name(kind, self.remote), after=after)

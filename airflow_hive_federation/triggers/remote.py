"""Watches remotes in the triggerer, for assets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.hooks.remotes import remotes_of

if TYPE_CHECKING:
    from airflow_hive_federation.remotes.probes import Look


class RemoteChangesTrigger(BaseEventTrigger):
    """Yields an event per change of a remote, for the ``AssetWatcher`` of an asset that starts its refresh.

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
                self.log.warning("Trying again: %s", error)
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

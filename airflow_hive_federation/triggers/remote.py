"""The triggerer's side of the sensors of remotes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.hooks.failing import error_text
from airflow_hive_federation.hooks.remotes import remotes_of


class RemoteTrigger(BaseTrigger):
    """Asks a remote until it has changed, or has a partition, or the deadline has passed.

    It yields once, whatever the state of the remote is after it: whoever waits again has refreshed the link,
    and waits for the next change.

    :param metastore_conn_id: connection of the local metastore.
    :param database: database of a table that is named without one.
    :param remote: local name.
    :param kind: ``table`` or ``database``.
    :param partition: name of a partition; ``None`` waits for a change.
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
        poll_s: float,
        deadline_s: float,
    ) -> None:
        super().__init__()
        self.metastore_conn_id = metastore_conn_id
        self.database = database
        self.remote = remote
        self.kind = kind
        self.partition = partition
        self.poll_s = poll_s
        self.deadline_s = deadline_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """How the scheduler hands the trigger to the triggerer."""
        names = ("metastore_conn_id", "database", "remote", "kind", "partition", "poll_s", "deadline_s")
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
        from airflow_hive_federation.remotes.probes import partition_exists, pending
        from airflow_hive_federation.remotes.statement import Kind, parse_name

        kind = Kind(self.kind)
        name = parse_name(kind, self.remote)
        with remotes_of(self.metastore_conn_id, database=self.database) as remotes:
            if self.partition:
                return partition_exists(remotes, name, self.partition)
            return pending(remotes, kind, name)

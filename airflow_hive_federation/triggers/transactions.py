"""Waits in the triggerer for the drain sensor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.hooks.error_translation import error_text
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook

_PAUSE_S = 1.5
#: Seconds of retries with a metastore that does not answer, before the wait is given up.
_PATIENCE_S = 120.0


class OpenTransactionsDrainTrigger(BaseTrigger):
    """Queries the metastore until the transactions have ended, or the deadline has passed.

    :param source_conn_id: the connection of the source's metastore.
    :param start: the result of :meth:`DrainStart.to_json`.
    :param deadline_s: the end of the wait, in seconds since 1970.
    """

    def __init__(self, *, source_conn_id: str, start: dict[str, Any], deadline_s: float) -> None:
        super().__init__()
        self.source_conn_id = source_conn_id
        self.start = start
        self.deadline_s = deadline_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the trigger in the form in which the scheduler passes it to the triggerer."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {"source_conn_id": self.source_conn_id, "start": self.start, "deadline_s": self.deadline_s},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: ``ended``, ``timeout`` or ``error``."""
        hook = HiveMetastoreHook(self.source_conn_id)
        silent_since: float | None = None
        while time.time() < self.deadline_s:
            try:
                remaining = await asyncio.to_thread(self._remaining, hook)
            except HiveFederationError as error:
                silent_since = silent_since or time.time()
                if not error.retryable or time.time() - silent_since > _PATIENCE_S:
                    yield self._event("error", message=error_text(error), retryable=error.retryable)
                    return
                self.log.warning("Asking again: %s", error)
            else:
                silent_since = None
                if not remaining:
                    yield self._event("ended")
                    return
                self.log.info("Still open: %s", ", ".join(map(str, remaining)))
            await asyncio.sleep(min(_PAUSE_S, max(0.0, self.deadline_s - time.time())))
        yield self._event("timeout")

    def _event(self, state: str, **facts: Any) -> TriggerEvent:
        return TriggerEvent({"state": state, "start": self.start, **facts})

    def _remaining(self, hook: HiveMetastoreHook) -> tuple[int, ...]:
        from airflow_hive_federation.replication.dump.drain import DrainStart, still_open

        # The hook keeps the connection's settings. Each query opens its own connection, because nothing would
        # close a kept one when the triggerer drops the trigger.
        with hook.client() as client:
            return still_open(client, DrainStart.from_json(self.start))

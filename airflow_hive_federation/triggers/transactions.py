"""The triggerer's side of the drain sensor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.hooks.failing import error_text
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook

_PAUSE_S = 1.5
#: A metastore that does not answer is asked again for this long before the wait is given up.
_PATIENCE_S = 120.0


class OpenTransactionsDrainTrigger(BaseTrigger):
    """Asks until the transactions have ended, or the deadline has passed.

    :param source_conn_id: connection of the source's metastore.
    :param start: what :meth:`DrainStart.to_json` gives.
    :param deadline_s: end of the wait, in seconds since 1970.
    """

    def __init__(self, *, source_conn_id: str, start: dict[str, Any], deadline_s: float) -> None:
        super().__init__()
        self.source_conn_id = source_conn_id
        self.start = start
        self.deadline_s = deadline_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """How the scheduler hands the trigger to the triggerer."""
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

        # The hook keeps the connection's settings; the metastore is asked over a connection of each time,
        # for nothing would close one that is kept when the triggerer drops the trigger.
        with hook.client() as client:
            return still_open(client, DrainStart.from_json(self.start))

"""Waits in the triggerer for the lag sensor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.hooks.error_translation import error_text
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.policy_fields import rendered_policy

#: Seconds of retries with metastores that do not answer, before the wait is given up.
_PATIENCE_S = 120.0


class ReplicationLagTrigger(BaseTrigger):
    """Queries both metastores until a target is close enough to its source, or the deadline has passed.

    :param policy: the fields of the policy.
    :param source_conn_id: the connection of the source's metastore.
    :param target_conn_id: the connection of the target's metastore.
    :param max_lag_s: the age, in seconds, that the oldest missing event may have.
    :param max_lag_events: the number of events that may be missing; ``None`` for any number.
    :param poll_s: seconds between two queries.
    :param deadline_s: the end of the wait, in seconds since 1970.
    """

    def __init__(
        self,
        *,
        policy: dict[str, Any],
        source_conn_id: str,
        target_conn_id: str,
        max_lag_s: float,
        max_lag_events: int | None,
        poll_s: float,
        deadline_s: float,
    ) -> None:
        super().__init__()
        self.policy = policy
        self.source_conn_id = source_conn_id
        self.target_conn_id = target_conn_id
        self.max_lag_s = max_lag_s
        self.max_lag_events = max_lag_events
        self.poll_s = poll_s
        self.deadline_s = deadline_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the trigger in the form in which the scheduler passes it to the triggerer."""
        names = (
            "policy",
            "source_conn_id",
            "target_conn_id",
            "max_lag_s",
            "max_lag_events",
            "poll_s",
            "deadline_s",
        )
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: ``reached``, ``timeout`` or ``error``."""
        silent_since: float | None = None
        lag: dict[str, Any] | None = None
        while True:
            try:
                lag = await asyncio.to_thread(self.ask)
            except HiveFederationError as error:
                silent_since = silent_since or time.time()
                if not error.retryable or time.time() - silent_since > _PATIENCE_S:
                    yield TriggerEvent(
                        {"state": "error", "message": error_text(error), "retryable": error.retryable}
                    )
                    return
                self.log.warning("Asking again: %s", error)
            else:
                silent_since = None
                if self.is_near(lag):
                    yield TriggerEvent({"state": "reached", "lag": lag})
                    return
                self.log.info("%s", described_lag(lag))
            if time.time() >= self.deadline_s:
                yield TriggerEvent({"state": "timeout", "lag": lag})
                return
            await asyncio.sleep(min(self.poll_s, max(0.0, self.deadline_s - time.time())))

    def ask(self) -> dict[str, Any] | None:
        """Return the lag, ``{"events", "seconds"}``; ``None`` while the target is not published."""
        from dataclasses import asdict

        from airflow_hive_federation.replication.status import read_lag

        policy = rendered_policy(self.policy, {})
        # Each query opens its own connections: nothing would close kept ones when the trigger is dropped.
        with (
            HiveMetastoreHook(self.source_conn_id).client() as source,
            HiveMetastoreHook(self.target_conn_id).client() as target,
        ):
            lag = read_lag(source, target, policy)
        return asdict(lag) if lag else None

    def is_near(self, lag: dict[str, Any] | None) -> bool:
        """Return whether the target is close enough."""
        return (
            lag is not None
            and lag["seconds"] <= self.max_lag_s
            and (self.max_lag_events is None or lag["events"] <= self.max_lag_events)
        )


def described_lag(lag: dict[str, Any] | None) -> str:
    """Return the description of a lag for a message."""
    if lag is None:
        return "The target is not published yet"
    return f"The target is behind by {lag['events']} events, {lag['seconds']:.0f} s"

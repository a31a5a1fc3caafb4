"""Waits in the triggerer for the sensors of this package."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.hooks.error_translation import error_text
from airflow_hive_federation.hooks.probes import observed, probe_of
from airflow_hive_federation.hooks.progress import task_observer
from airflow_hive_federation.waiting import PollPolicy, Wait


class ProbeTrigger(BaseTrigger):
    """Calls a probe until its answer is true, or until the deadline has passed.

    Another triggerer that takes the trigger over waits until the same deadline, and looks once if the
    deadline has passed in between.

    :param kind: the kind of the probe: ``drain``, ``job``, ``lag`` or ``remote``.
    :param probe: the fields of the probe.
    :param poll: the fields of the :class:`~airflow_hive_federation.waiting.PollPolicy`.
    :param deadline_s: the end of the wait, in seconds since 1970; ``None`` waits without an end.
    """

    def __init__(
        self,
        *,
        kind: str,
        probe: Mapping[str, object],
        poll: Mapping[str, Any],
        deadline_s: float | None,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.probe = dict(probe)
        self.poll = dict(poll)
        self.deadline_s = deadline_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the trigger in the form in which the scheduler passes it to the triggerer."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {"kind": self.kind, "probe": self.probe, "poll": self.poll, "deadline_s": self.deadline_s},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: the fields of the last answer, or ``error`` and ``retryable``."""
        left_s = None if self.deadline_s is None else max(0.0, self.deadline_s - time.time())
        policy = replace(PollPolicy(**self.poll), timeout_s=left_s)
        wait = Wait(observed(probe_of(self.kind, self.probe), task_observer(self.log)), policy)
        try:
            while (pause_s := await asyncio.to_thread(wait.step)) is not None:
                await asyncio.sleep(pause_s)
        except HiveFederationError as error:
            yield TriggerEvent({"error": error_text(error), "retryable": error.retryable})
        else:
            yield TriggerEvent(wait.answer.to_json())

    async def on_kill(self) -> None:
        """Have the awaited work end, because a user has ended the task; Airflow 3.3 and later call this."""
        await asyncio.to_thread(probe_of(self.kind, self.probe).stop)

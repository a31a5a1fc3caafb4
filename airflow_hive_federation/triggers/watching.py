"""Provides the base of the triggers that watch for assets: the same wait as of sensors, again and again."""

from __future__ import annotations

import asyncio
import math
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.waiting import PollPolicy, Wait


class WatchTrigger(BaseEventTrigger):
    """Base of the triggers that yield an event per change, for ever.

    A watcher has no task to fail: it tries a metastore that does not answer again for ever, and begins anew
    after any other error.

    :param poll_s: seconds between two looks.
    """

    #: The names of the parameters with which the scheduler passes the trigger to the triggerer.
    fields: ClassVar[tuple[str, ...]] = ("poll_s",)

    def __init__(self, *, poll_s: float) -> None:
        super().__init__()
        self.poll_s = poll_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the trigger in the form in which the scheduler passes it to the triggerer."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {name: getattr(self, name) for name in self.fields},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event per change."""
        policy = PollPolicy(
            first_s=self.poll_s, factor=1.0, longest_s=self.poll_s, timeout_s=None, patience_s=math.inf
        )
        reported = ""
        while True:
            wait = Wait(self._look, policy)
            try:
                while (pause_s := await asyncio.to_thread(wait.step)) is not None:
                    await asyncio.sleep(pause_s)
            except HiveFederationError as error:
                # The same error at each look is one line.
                (self.log.debug if str(error) == reported else self.log.warning)("Watching anew: %s", error)
                reported = str(error)
                self._begin_anew()
            else:
                reported = ""
                yield TriggerEvent(wait.answer)
            await asyncio.sleep(self.poll_s)

    @abstractmethod
    def _look(self) -> Mapping[str, object]:
        """Look once; return the payload of a change that no earlier look has returned, or nothing.

        :raises HiveFederationError: a metastore refuses, or does not answer.
        """

    def _begin_anew(self) -> None:
        """Forget what earlier looks have seen, after an error that another look would only repeat."""

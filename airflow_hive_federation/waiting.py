"""Waiting, described once: a probe says whether something is so, a poll policy says how often to ask.

Operators, sensors and triggers share a probe; where the waiting happens (a worker, the triggerer, a plain
loop) is all that differs between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PollPolicy:
    """How often to ask, and for how long.

    :param first_s: seconds before the second question.
    :param factor: growth of the pause from one question to the next.
    :param longest_s: the pause never exceeds this many seconds.
    :param timeout_s: seconds after which waiting ends; ``None`` waits for ever.
    """

    first_s: float = 0.5
    factor: float = 1.5
    longest_s: float = 5.0
    timeout_s: float | None = None

    def pauses(self) -> Iterator[float]:
        """Yield the pauses, in seconds, until the timeout is used up (by the sum of pauses)."""
        waited, pause = 0.0, self.first_s
        while self.timeout_s is None or waited < self.timeout_s:
            step = pause if self.timeout_s is None else min(pause, self.timeout_s - waited)
            yield step
            waited += step
            pause = min(pause * self.factor, self.longest_s)


def wait_until(
    probe: Callable[[], bool], policy: PollPolicy, *, sleep: Callable[[float], None] = time.sleep
) -> bool:
    """Ask ``probe`` until it says yes; return whether it did before the policy's timeout."""
    if probe():
        return True
    for pause in policy.pauses():
        sleep(pause)
        if probe():
            return True
    return False

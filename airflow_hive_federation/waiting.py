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
    :param timeout_s: seconds after which waiting ends, the time of the questions included; ``None`` waits
        for ever.
    """

    first_s: float = 0.5
    factor: float = 1.5
    longest_s: float = 5.0
    timeout_s: float | None = None

    def pauses(self, clock: Callable[[], float] = time.monotonic) -> Iterator[float]:
        """Return the pauses, in seconds; the timeout counts from this call, whatever is done between them.

        :param clock: seconds of a clock that never goes back.
        """
        return self._pauses(clock, None if self.timeout_s is None else clock() + self.timeout_s)

    def _pauses(self, clock: Callable[[], float], deadline_s: float | None) -> Iterator[float]:
        pause = self.first_s
        while deadline_s is None or clock() < deadline_s:
            yield pause if deadline_s is None else max(0.0, min(pause, deadline_s - clock()))
            pause = min(pause * self.factor, self.longest_s)


def boot_time_s() -> float:
    """Seconds of a clock that never goes back, and counts suspended time where the system has such a one."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def wait_until(
    probe: Callable[[], bool],
    policy: PollPolicy,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Ask ``probe`` until it says yes; return whether it did before the policy's timeout.

    The timeout is one of the clock: a probe that takes long leaves room for fewer of them. The last probe
    begins at the timeout or before it, so the wait takes at most one probe longer.

    :param sleep: waits so many seconds.
    :param clock: seconds of a clock that never goes back.
    """
    pauses = policy.pauses(clock)
    while not probe():
        pause = next(pauses, None)
        if pause is None:
            return False
        sleep(pause)
    return True

"""Waits until a probe succeeds; a poll policy defines the pauses between its calls.

Operators, sensors and triggers share a probe and differ only in the place of the wait: a worker, the
triggerer, or a plain loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PollPolicy:
    """The pauses between the calls of a probe, and the timeout of the wait.

    :param first_s: seconds before the second call.
    :param factor: the growth of the pause from one call to the next.
    :param longest_s: the longest pause in seconds.
    :param timeout_s: seconds after which the wait ends, the time of the calls included; ``None`` waits for
        ever.
    """

    first_s: float = 0.5
    factor: float = 1.5
    longest_s: float = 5.0
    timeout_s: float | None = None

    def pauses(self, clock: Callable[[], float] = time.monotonic) -> Iterator[float]:
        """Return the pauses in seconds; the timeout counts from this call, including the work between pauses.

        :param clock: returns the seconds of a clock that never goes back.
        """
        return self._pauses(clock, None if self.timeout_s is None else clock() + self.timeout_s)

    def _pauses(self, clock: Callable[[], float], deadline_s: float | None) -> Iterator[float]:
        pause = self.first_s
        while deadline_s is None or clock() < deadline_s:
            yield pause if deadline_s is None else max(0.0, min(pause, deadline_s - clock()))
            pause = min(pause * self.factor, self.longest_s)


def boot_time_s() -> float:
    """Return the seconds of a clock that never goes back, and counts suspended time if the system can."""
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
    """Call ``probe`` until it returns true; return whether it did before the policy's timeout.

    The timeout includes the time that the probe takes: slow probes are called less often. The last call
    begins at the timeout or before it, so the wait ends at most one call later.

    :param sleep: waits for a number of seconds.
    :param clock: returns the seconds of a clock that never goes back.
    """
    pauses = policy.pauses(clock)
    while not probe():
        pause = next(pauses, None)
        if pause is None:
            return False
        sleep(pause)
    return True

"""Limits the bytes per second that a process reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class TokenBucket:
    """A token bucket that grants bytes at a steady rate to the threads of one process.

    The bucket holds at most the bytes of one second. A thread may take more than it holds, and all threads
    then wait until the rate has made up for it: so chunks may be larger than the bytes of one second, and the
    average rate stays the same.

    :param bytes_per_s: the rate, at least 1.
    :param clock: returns monotonic seconds.
    :param sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        bytes_per_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if bytes_per_s < 1:
            raise ValueError(f"a rate of {bytes_per_s} bytes per second moves nothing")
        self._rate = float(bytes_per_s)
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        # The bucket starts empty: many tasks with full buckets at the start would exceed the job's limit.
        self._tokens = 0.0
        self._filled_at = clock()

    def take(self, size_bytes: int) -> float:
        """Wait until ``size_bytes`` are granted; return the seconds waited."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._rate, self._tokens + (now - self._filled_at) * self._rate)
            self._filled_at = now
            self._tokens -= size_bytes
            pause_s = max(0.0, -self._tokens / self._rate)
        if pause_s:
            self._sleep(pause_s)
        return pause_s

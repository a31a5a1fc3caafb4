"""A cap on bytes per second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class TokenBucket:
    """Hands out bytes at a steady rate; shared by the threads of one process.

    The bucket holds at most one second's bytes. Taking more than it holds puts it in debt, which the taker
    and everybody after wait off: chunks larger than a second's bytes are possible, and the average holds.

    :param bytes_per_s: the rate, at least 1.
    :param clock: seconds, monotonic.
    :param sleep: waits so many seconds.
    """

    def __init__(
        self,
        bytes_per_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if bytes_per_s < 1:
            raise ValueError(f"a rate of {bytes_per_s} bytes a second moves nothing")
        self._rate = float(bytes_per_s)
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        # Empty at first: many tasks that each begin with a full bucket would burst past the job's cap.
        self._tokens = 0.0
        self._filled_at = clock()

    def take(self, size_bytes: int) -> float:
        """Wait until ``size_bytes`` may pass; return the seconds waited."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._rate, self._tokens + (now - self._filled_at) * self._rate)
            self._filled_at = now
            self._tokens -= size_bytes
            pause_s = max(0.0, -self._tokens / self._rate)
        if pause_s:
            self._sleep(pause_s)
        return pause_s

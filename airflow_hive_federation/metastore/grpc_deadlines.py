"""Ends waits at their deadlines, for calls of grpcio that have no deadline of their own.

One thread per process watches all waits, and runs only while a call is waiting. A wait that ends later than
the known ones does not wake it, so that a call costs no switch of threads.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

#: Seconds that the thread stays alive without a wait.
_LINGER_S = 5.0


class Deadlines:
    """The waits under way, each with its deadline and the function that ends it."""

    _thread: threading.Thread | None

    def __init__(self) -> None:
        self._reset()

    def watch(self, seconds: float, end: Callable[[], None]) -> object:
        """Call ``end`` after ``seconds``, in another thread, unless :meth:`forget` is called first.

        :return: a handle of the wait for :meth:`forget`.
        """
        at, wait = time.monotonic() + seconds, object()
        with self._lock:
            self._waits[wait] = at, end
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="grpc-deadlines", daemon=True)
                self._thread.start()
            elif at < self._looks_at:
                self._changed.notify()
        return wait

    def forget(self, wait: object) -> bool:
        """Stop watching a wait.

        :return: ``True`` if ``end`` was not called, and will not be called.
        """
        with self._lock:
            return self._waits.pop(wait, None) is not None

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waits: dict[object, tuple[float, Callable[[], None]]] = {}
        self._looks_at = 0.0
        self._thread = None

    def _look(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                over = [wait for wait, (at, _) in self._waits.items() if at <= now]
                ends = [self._waits.pop(wait)[1] for wait in over]
                if not ends:
                    known = min((at for at, _ in self._waits.values()), default=now + _LINGER_S)
                    self._looks_at = known
                    timely = self._changed.wait(known - now)
                    if not timely and not self._waits:
                        self._thread = None
                        return
            for end in ends:
                end()


DEADLINES = Deadlines()
# A forked child does not inherit the thread.
os.register_at_fork(after_in_child=DEADLINES._reset)  # noqa: SLF001 - of this module

"""Ends a process of the gateway on ``SIGTERM`` and ``SIGINT``."""

from __future__ import annotations

import queue
import signal
from types import FrameType, TracebackType
from typing import Self


class Stopping:
    """Waits for a signal to stop; the signals' former handlers are in place again after the ``with`` block.

    Python runs a signal's handler in the main thread, also while that thread waits. An ``Event`` would not
    do: its ``set`` takes a lock that its ``wait`` may hold at that moment, so that the process would never
    stop. A ``SimpleQueue`` is made for this.
    """

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[None] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self._before = {
            number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)
        }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def request(self) -> None:
        """Request the stop; any thread may do so."""
        self._requests.put(None)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a request; return whether one has come.

        :param timeout_s: seconds to wait; ``None`` waits until a request comes.
        """
        try:
            self._requests.get(timeout=timeout_s)
        except queue.Empty:
            return False
        return True

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.request()

"""Ends a process of the gateway on ``SIGTERM`` and ``SIGINT``."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self

from airflow_hive_federation.waiting import StopRequest


class Stopping:
    """Waits for a signal to stop; the signals' former handlers are in place again after the ``with`` block.

    Python runs a signal's handler in the main thread, also while that thread waits.
    """

    def __init__(self) -> None:
        self._request = StopRequest()

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
        self._request.make()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a request; return whether one has come.

        :param timeout_s: seconds to wait; ``None`` waits until a request comes.
        """
        return self._request.wait(timeout_s)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.request()

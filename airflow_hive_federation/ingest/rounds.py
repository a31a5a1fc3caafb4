"""Ends the work of threads on files before others touch these files.

An exception of a signal (Airflow's ``execution_timeout``, Ctrl-C) comes between any two steps of the main
thread, also while it submits tasks or waits for them. The tasks go on. Whoever cleans up after it therefore
first ends the round of these tasks.

A list of futures would not do, because an exception inside ``submit`` leaves a task whose future nobody has.
Neither would the end of the threads: up to Python 3.12, a thread whose ``join`` was interrupted counts as one
that has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Round:
    """Tasks that write to the same files; after the end of the round, none of them runs or begins.

    :param threads: run the tasks.
    """

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._changed = threading.Condition()
        self._running = 0
        self._is_allowed = self._is_over = False

    def submit(self, task: Callable[P, T], *args: P.args, **named: P.kwargs) -> Future[T]:
        """Submit a task; its future raises ``CancelledError`` if the round ends before it begins."""
        return self._threads.submit(self._run, lambda: task(*args, **named))

    def allow(self) -> None:
        """Let the tasks write."""
        with self._changed:
            self._is_allowed = True
            self._changed.notify_all()

    def wait_until_allowed(self) -> None:
        """Wait, in a task, until it may write.

        :raises CancelledError: the round is over.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_allowed or self._is_over)
            if self._is_over:
                raise CancelledError

    def end(self) -> None:
        """Let no more tasks begin, and wait for those that run; repeat the call if it was interrupted."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._running)

    def _run(self, task: Callable[[], T]) -> T:
        with self._changed:
            if self._is_over:
                raise CancelledError
            self._running += 1
        try:
            return task()
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

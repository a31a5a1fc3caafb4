"""Cuts a piece of work off at its n-th step: a call of a metastore, or a change of a file system.

As if the process were killed there: the step is not taken, nor any after it, whatever cleans up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from fsspec.implementations.local import LocalFileSystem

from airflow_hive_federation.metastore import MetastoreClient

_CHANGES = ("makedirs", "mv", "rm", "rm_file")


class Cut(BaseException):
    """Nothing is done from here on. No error: nobody may handle it."""


class Steps:
    """Counts steps.

    :param last: the first step that is not taken; ``None`` for none.
    """

    def __init__(self, last: int | None) -> None:
        self._last = last
        self._lock = threading.Lock()
        self.taken: list[str] = []

    def take(self, step: str) -> None:
        with self._lock:
            if self._last is not None and len(self.taken) + 1 >= self._last:
                raise Cut(step)
            self.taken.append(step)


class Interruption(Steps):
    """Counts steps, and has an action happen after one of them.

    :param number: the step.
    """

    def __init__(self, number: int, action: Callable[[], None]) -> None:
        super().__init__(None)
        self._number = number
        self._action = action
        self.happened = False

    def take(self, step: str) -> None:
        super().take(step)
        with self._lock:
            due = not self.happened and len(self.taken) >= self._number
            self.happened |= due
        if due:
            # Its own steps count, too, and those of other threads go on.
            self._action()


@contextmanager
def cut_at(last: int | None) -> Iterator[Steps]:
    """Have every metastore call and every change of a local file system count.

    :param last: the first that fails; ``None`` only counts.
    """
    with counted_by(Steps(last)) as steps:
        yield steps


@contextmanager
def acting_at(number: int, action: Callable[[], None]) -> Iterator[Interruption]:
    """Have an action happen at a step of a piece of work, before the step is taken; or never."""
    interruption = Interruption(number, action)
    with counted_by(interruption):
        yield interruption


@contextmanager
def counted_by(steps: Steps) -> Iterator[Steps]:
    """Have some steps count the calls of metastores and the changes of local file systems."""

    def counted(call: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        def step(self: Any, *args: Any, **kwargs: Any) -> Any:
            if step := name(*args, **kwargs):
                steps.take(step)
            return call(self, *args, **kwargs)

        return step

    def opening(path: str, mode: str = "rb", **_: Any) -> str:
        return "" if mode.startswith("r") else f"open {path}"

    uncaught = threading.excepthook

    def without_cuts(args: threading.ExceptHookArgs) -> None:
        if not isinstance(args.exc_value, Cut):
            uncaught(args)

    with ExitStack() as patches:
        # A thread that is cut off ends without an error, as in a process that is killed.
        patches.enter_context(patch.object(threading, "excepthook", without_cuts))
        call = counted(MetastoreClient._call, lambda method, *_: str(method))
        patches.enter_context(patch.object(MetastoreClient, "_call", call))
        for change in _CHANGES:
            made = counted(
                getattr(LocalFileSystem, change), lambda *args, change=change, **_: f"{change} {args[0]}"
            )
            patches.enter_context(patch.object(LocalFileSystem, change, made))
        opened = counted(LocalFileSystem.open, opening)
        patches.enter_context(patch.object(LocalFileSystem, "open", opened))
        yield steps

"""Reports the progress of a long command on stderr: stages with the time since the start, details, counts.

On a terminal, counts are a bar that is overwritten; elsewhere they are a few lines.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TextIO

from airflow_hive_federation.progress.events import (
    BootstrapDumped,
    Event,
    FilesProcessed,
    StepStarting,
    TableCreated,
    TableDumped,
)
from airflow_hive_federation.progress.quantities import several
from airflow_hive_federation.progress.words import words

#: The number of lines of one kind that appear in full; afterwards only their count appears.
_IN_FULL = 12
#: Seconds between two lines of one count where nothing can be overwritten.
_EVERY_S = 5.0
_BAR_WIDTH = 24


class Story:
    """Reports the progress of a command.

    :param stream: the stream to write to; stderr by default, so that stdout holds nothing but results.
    :param clock: returns the time in seconds.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._overwrites = self._stream.isatty()
        self._clock = clock
        self._began = clock()
        # Events come from several threads.
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._tables = 0
        self._counted_at = -_EVERY_S
        self._last = ""
        self._drawn = False

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._began

    def stage(self, text: str) -> None:
        """Begin the next stage."""
        with self._lock:
            self._counts.clear()
            self._line(f"[{self.seconds:5.1f} s] {text}")

    def detail(self, text: str) -> None:
        """Write a detail of the stage, unless it repeats the last one."""
        with self._lock:
            self._detail(text)

    def _detail(self, text: str) -> None:
        if text != self._last:
            self._last = text
            self._line(f"          {text}")

    def observe(self, event: Event, *, label: str = "") -> None:
        """Report an event: a count as a count, and a long series of tables shortened; steps are left out.

        :param label: a label before the text, in a column of its own.
        """
        before = f"{label:<7} " if label else ""
        with self._lock:
            match event:
                case StepStarting():
                    pass
                case FilesProcessed():
                    self._count_files(event, before)
                case TableDumped():
                    self._count_dumped(event, before)
                case TableCreated():
                    self._count_created(event, before)
                case BootstrapDumped():
                    self._tables = event.tables
                    self._detail(f"{before}{words(event)}")
                case _:
                    self._detail(f"{before}{words(event)}")

    def relay(self, entry: Event | str, *, label: str) -> None:
        """Report an event, or another line, of a task.

        :param label: the name of the task.
        """
        if isinstance(entry, Event):
            self.observe(entry, label=label)
        else:
            self.detail(f"{label:<7} {entry}")

    def _count_files(self, event: FilesProcessed, before: str) -> None:
        if event.files or self._overwrites:
            self._count(f"{before}{words(event)}", event.files, event.all_files)

    def _count_dumped(self, event: TableDumped, before: str) -> None:
        self._counts["dumped"] += 1
        summary = f"{before}{several(self._counts['dumped'], 'table')} dumped"
        self._one_of_many("dumped", f"{before}{words(event)}", summary)

    def _count_created(self, event: TableCreated, before: str) -> None:
        self._counts["created"] += 1
        done = self._counts["created"]
        everything = max(self._tables, self._counts["dumped"], done)
        summary = f"{before}{done:,} of {several(everything, 'table')} created"
        self._one_of_many("created", f"{summary}: {event.table}", summary, everything=everything)

    def _one_of_many(self, kind: str, text: str, summary: str, *, everything: int = 0) -> None:
        if self._counts[kind] <= _IN_FULL:
            self._detail(text)
        else:
            self._count(summary, self._counts[kind], everything)

    def _count(self, text: str, done: int, everything: int) -> None:
        finished = done == everything
        if self._overwrites and not finished:
            self._draw(text, done / everything if everything else None)
        elif finished or self._clock() - self._counted_at >= _EVERY_S:
            self._counted_at = self._clock()
            self._detail(text)

    def _draw(self, text: str, share: float | None) -> None:
        filled = "" if share is None else _bar(share) + " "
        width = shutil.get_terminal_size().columns - 1
        self._stream.write("\r\x1b[2K" + f"          {filled}{text}"[:width])
        self._stream.flush()
        self._drawn = True

    def _line(self, text: str) -> None:
        if self._drawn:
            self._stream.write("\r\x1b[2K")
            self._drawn = False
        self._stream.write(text + "\n")
        self._stream.flush()


def _bar(share: float) -> str:
    filled = round(share * _BAR_WIDTH)
    return "█" * filled + "░" * (_BAR_WIDTH - filled)

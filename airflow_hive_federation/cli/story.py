"""Reports the progress of a long command on stderr: stages with the time since the start, details, counts.

On a terminal, counts are a bar that is overwritten; elsewhere they are a few lines.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import TextIO

#: The number of lines of one kind that appear in full; afterwards only their count appears.
_IN_FULL = 12
#: Seconds between two lines of one count where nothing can be overwritten.
_EVERY_S = 5.0
_BAR_WIDTH = 24

_FILES = re.compile(
    r"(?P<job>copy|digest)-files: (?P<done>[\d,]+) of (?P<all>[\d,]+) files, "
    r"(?P<done_mb>\S+) of (?P<all_mb>\S+) MB, (?P<rate>\S+) MB/s"
)
_DUMPED = re.compile(
    r"(?P<table>\S+): (?:(?P<partitions>\d+) partitions|(?P<work>[a-z]+)), "
    r"(?P<files>\d+) files, (?P<size_bytes>\d+) bytes"
)
_CREATED = re.compile(r"(?P<table>\S+): created with (?P<partitions>\d+) partitions")
_VERBS = {"copy": "copied", "digest": "compared"}


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
        self._counts: Counter[str] = Counter()
        self._counted_at = -_EVERY_S
        self._last = ""
        self._drawn = False

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._began

    def stage(self, text: str) -> None:
        """Begin the next stage."""
        self._counts.clear()
        self._line(f"[{self.seconds:5.1f} s] {text}")

    def detail(self, text: str) -> None:
        """Write a detail of the stage, unless it repeats the last one."""
        if text != self._last:
            self._last = text
            self._line(f"          {text}")

    def relay(self, text: str, *, label: str = "") -> None:
        """Report a line of the library's progress: counts as counts, and a long series of tables shortened.

        :param label: a label before the text, in a column of its own.
        """
        before = f"{label:<7} " if label else ""
        if match := _FILES.fullmatch(text):
            self._count_files(match, before)
        elif match := _DUMPED.fullmatch(text):
            self._counts["dumped"] += 1
            self._one_of_many(
                "dumped",
                f"{before}{match['table']}: {_contents(match)}",
                f"{before}{self._counts['dumped']:,} tables dumped",
            )
        elif match := _CREATED.fullmatch(text):
            self._count_created(match, before)
        else:
            self.detail(f"{before}{text}")

    def expect_tables(self, count: int) -> None:
        """Set the number of tables where the story has received no dump."""
        self._counts["dumped"] = count

    def _count_files(self, match: re.Match[str], before: str) -> None:
        done, everything = (int(match[name].replace(",", "")) for name in ("done", "all"))
        if not done and not self._overwrites:
            return
        text = (
            f"{before}{_VERBS[match['job']]} {done:,} of {_several(str(everything), 'file')}, "
            f"{match['done_mb']} of {match['all_mb']} MB, {match['rate']} MB/s"
        )
        self._count(text, done, everything)

    def _count_created(self, match: re.Match[str], before: str) -> None:
        self._counts["created"] += 1
        done, everything = self._counts["created"], max(self._counts["dumped"], self._counts["created"])
        summary = f"{before}{done:,} of {_several(str(everything), 'table')} created"
        self._one_of_many("created", f"{summary}: {match['table']}", summary, everything=everything)

    def _one_of_many(self, kind: str, text: str, summary: str, *, everything: int = 0) -> None:
        if self._counts[kind] <= _IN_FULL:
            self.detail(text)
        else:
            self._count(summary, self._counts[kind], everything)

    def _count(self, text: str, done: int, everything: int) -> None:
        finished = done == everything
        if self._overwrites and not finished:
            self._draw(text, done / everything if everything else None)
        elif finished or self._clock() - self._counted_at >= _EVERY_S:
            self._counted_at = self._clock()
            self.detail(text)

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


def is_count(text: str) -> bool:
    """Return whether a line of a log is a count of a job's progress."""
    return _FILES.fullmatch(text) is not None


def _bar(share: float) -> str:
    filled = round(share * _BAR_WIDTH)
    return "█" * filled + "░" * (_BAR_WIDTH - filled)


def _several(count: str, noun: str) -> str:
    return f"{int(count):,} {noun}" + ("" if int(count) == 1 else "s")


def _contents(dumped: re.Match[str]) -> str:
    """Return the dumped contents of a table; an unpartitioned one has no partitions, and a view no files.

    An increment's line names the action on the table instead of the number of its partitions.
    """
    counts = [_several(dumped[name], name[:-1]) for name in ("partitions", "files") if int(dumped[name] or 0)]
    size_bytes = int(dumped["size_bytes"])
    contents = ", ".join([*counts, _size(size_bytes)] if size_bytes else counts) or "its definition"
    return f"{dumped['work']}, {contents}" if dumped["work"] else contents


def _size(size_bytes: int) -> str:
    """Return the size in units of powers of 1000, as the library's rates."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:,.1f} {unit}"
    return f"{size_bytes} bytes"

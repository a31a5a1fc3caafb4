"""Decides which lines of spark-submit's output belong into the log of a task at INFO. Pure."""

from __future__ import annotations

import re

#: Lines of a healthy start, of a resolution of packages, and the frames of a stack: a log has them at DEBUG.
_ROUTINE = re.compile(
    r"^WARNING: Using incubator modules|"
    r"^Using Spark's (default|repl) log4j |"
    r"^Setting (default|Spark) log level to |"
    r"^To adjust logging level use |"
    r"\bWARN NativeCodeLoader: |"
    r"^\d\d/\d\d/\d\d \d\d:\d\d:\d\d (INFO|DEBUG|TRACE) |"
    r"^:: |"
    r"^\s+at [\w.$/]+\(|"
    r"^\s*\.\.\. \d+ more$|"
    r"^\t|"
    r"^\s*$"
)


def is_routine(line: str) -> bool:
    """Return whether a line is one that healthy jobs print, or the frame of a stack."""
    return _ROUTINE.search(line) is not None

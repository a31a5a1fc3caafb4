"""Reports the progress of long steps as lines for a task's log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_EVERY_S = 30.0


def counted(
    items: Iterable[T],
    what: str,
    progress: Callable[[str], None],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[T]:
    """Yield the items, and report twice per minute their number so far and the number per second.

    :param what: the heading of each report, which names the subject and the items: ``db.t: partitions read``.
    :param progress: receives one line per report.
    """
    began = reported = clock()
    for count, item in enumerate(items, 1):
        yield item
        now = clock()
        if now - reported >= _EVERY_S:
            reported = now
            progress(f"{what}: {count:,} so far, {count / (now - began):,.0f} a second")

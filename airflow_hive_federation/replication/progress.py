"""How far long steps are: lines for a task's log."""

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
    """Yield the items, and tell twice a minute how many they were so far, and how many a second.

    :param what: what the items are of, and are: ``db.t: partitions read``.
    """
    began = told = clock()
    for count, item in enumerate(items, 1):
        yield item
        now = clock()
        if now - told >= _EVERY_S:
            told = now
            progress(f"{what}: {count:,} so far, {count / (now - began):,.0f} a second")

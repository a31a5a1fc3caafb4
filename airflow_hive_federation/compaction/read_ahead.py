"""Reading on in threads of their own while what was read is worked on."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class ReadAhead(Generic[_Item]):
    """Asks a generator for its items before they are wanted, in a thread of its own.

    What the generator raises is raised where its item would have come. To be closed when done.

    :param items: nobody else may use it before this is closed.
    :param count: items that are ready, or being made, at most.
    """

    def __init__(self, items: Generator[_Item, None, None], count: int) -> None:
        self._items = items
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead")
        self._asked = deque(self._ask() for _ in range(count))

    def __iter__(self) -> Iterator[_Item]:
        # No item is twice among those asked for: after the last one, and after an error, there is none.
        while found := self._asked.popleft().result():
            self._asked.append(self._ask())
            yield from found

    def close(self) -> None:
        """Close the generator, as soon as it has made the item that it is at."""
        self._thread.shutdown(cancel_futures=True)
        self._items.close()

    def _ask(self) -> Future[list[_Item]]:
        return self._thread.submit(self._next)

    def _next(self) -> list[_Item]:
        for item in self._items:
            return [item]
        return []


def entered_ahead(
    managers: Iterable[AbstractContextManager[_Item]], count: int
) -> Generator[_Item, None, None]:
    """Yield what context managers give, one after the other; each is left before the next is yielded.

    :param count: so many of those to come are entered already.
    """
    entered: deque[tuple[_Item, ExitStack]] = deque()
    try:
        for manager in managers:
            leave = ExitStack()
            entered.append((leave.enter_context(manager), leave))
            if len(entered) > count:
                yield from _left(entered)
        while entered:
            yield from _left(entered)
    finally:
        with ExitStack() as all_left:
            for _, leave in entered:
                all_left.callback(leave.close)


def _left(entered: deque[tuple[_Item, ExitStack]]) -> Iterator[_Item]:
    yield entered[0][0]
    entered.popleft()[1].close()

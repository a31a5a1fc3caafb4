"""Reads the next items in a thread of its own while the caller works on earlier items."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class ReadAhead(Generic[_Item]):
    """An iterator that takes items from a generator ahead of the caller, in a thread of its own.

    An error of the generator is raised in place of its item. The caller closes the iterator in the end.

    :param items: the generator, which no other code may use before :meth:`close`.
    :param count: the most items that are ready or in progress.
    """

    def __init__(self, items: Generator[_Item, None, None], count: int) -> None:
        self._items = items
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead")
        self._asked = deque(self._ask() for _ in range(count))

    def __iter__(self) -> Iterator[_Item]:
        # A generator yields no item after its last one or an error: the remaining requests return none.
        while items := self._asked.popleft().result():
            self._asked.append(self._ask())
            yield from items

    def close(self) -> None:
        """Close the generator after the item in progress."""
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
    """Yield the values of context managers one by one, and exit each before the next value.

    :param count: number of context managers that are entered ahead.
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

"""Stores pairs of numbers in sixteen bytes each: cycles have millions, and tuples take ten times as much."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

_LONG = "q"


class Pairs(Sequence[tuple[int, int]]):
    """A sequence of pairs of 64-bit numbers.

    :param pairs: the initial pairs.
    """

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: array[int] = array(_LONG)
        self._seconds: array[int] = array(_LONG)
        for first, second in pairs:
            self.append(first, second)

    def append(self, first: int, second: int) -> None:
        """Add a pair at the end."""
        self._firsts.append(first)
        self._seconds.append(second)

    def ascending(self) -> Pairs:
        """Return the pairs in the order of their second numbers; for equal ones, only the last pair."""
        if all(self._seconds[place] < self._seconds[place + 1] for place in range(len(self) - 1)):
            return self
        by_second = dict(zip(self._seconds, self._firsts, strict=True))
        return Pairs((by_second[second], second) for second in sorted(by_second))

    def __len__(self) -> int:
        return len(self._firsts)

    @overload
    def __getitem__(self, index: int) -> tuple[int, int]: ...

    @overload
    def __getitem__(self, index: slice) -> Pairs: ...

    def __getitem__(self, index: int | slice) -> tuple[int, int] | Pairs:
        if isinstance(index, int):
            return self._firsts[index], self._seconds[index]
        selected = Pairs()
        selected._firsts, selected._seconds = self._firsts[index], self._seconds[index]
        return selected

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._seconds, strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(
            mine == theirs for mine, theirs in zip(self, other, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Pairs({list(self)})"

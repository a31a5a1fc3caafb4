"""Divides a table's partitions into pages, one per metastore call, and finds a condition for each page.

Nothing here calls the metastore. For a call by names, a database that cannot use its index for long lists
(Derby) compares each partition of the table with each name of the list: in all, the square of their number.
For a call by a range of one partition key, it compares each partition with two values per page.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from airflow_hive_federation.model.partitions import DEFAULT_PARTITION, unescape

#: Bytes that a page of partitions may take in Python, and the measured size of a partition and of each of its
#: columns (docs/metastore-client.md).
_PAGE_BYTES, _PARTITION_BYTES, _COLUMN_BYTES = 64 << 20, 4000, 270
#: Bytes of the statistics of one column of a partition in Python.
_STATISTICS_BYTES = 1200
#: A table with at most this many partitions is read as one page, whatever its columns.
ONE_PAGE = 1000
_WHOLE_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_TEXTS = frozenset({"string", "date"})
_PLAIN_KEY = re.compile(r"[a-z_][a-z0-9_]*")
_WHOLE_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_PLAIN_TEXT = re.compile(r"[^'\"\\\x00-\x1f]+")


@dataclass(frozen=True, kw_only=True)
class Page:
    """Partitions that one call reads.

    :param names: the partitions' names.
    :param condition: condition on a partition key that holds for these partitions, and perhaps for others, if
        texts are ordered by their characters; the database may order them otherwise. Empty if no condition
        exists.
    :param everything: these are all partitions of the table.
    """

    names: Sequence[str]
    condition: str = ""
    everything: bool = False


def page_size(columns: int, *, with_column_stats: bool = False) -> int:
    """Return the number of partitions per page for a table with this number of columns."""
    column_bytes = _COLUMN_BYTES + _STATISTICS_BYTES * with_column_stats
    return max(ONE_PAGE, _PAGE_BYTES // (_PARTITION_BYTES + column_bytes * columns))


def pages(keys: Sequence[tuple[str, str]], names: Sequence[str], size: int) -> Iterator[Page]:
    """Divide partitions into pages; beside the names, the function keeps one number per partition in memory.

    :param keys: names and types of the partition keys.
    :param names: the partitions' names.
    :param size: partitions per page; a page has more if more partitions share the key's value.
    """
    key = _best_key(keys, names)
    others: Sequence[int] = range(len(names))
    if key is not None:
        usable, others = key.divided(names)
        members, low, high = list[str](), "", ""
        for value, group in key.groups(names, usable):
            if members and len(members) + len(group) > size:
                yield key.page(members, low, high)
                members = []
            low, high = (low if members else value), value
            members += group
        yield key.page(members, low, high)
    for start in range(0, len(others), size):
        yield Page(names=[names[index] for index in others[start : start + size]])


@dataclass(frozen=True)
class _Key:
    """A partition key whose values a condition can contain, with few exceptions.

    :param place: position among the table's partition keys.
    """

    name: str
    place: int
    is_number: bool

    def value(self, name: str) -> str | None:
        """Return the key's value in a partition's name; ``None`` if no condition can contain it."""
        value = unescape(name.split("/")[self.place].partition("=")[2])
        usable = _WHOLE_NUMBER if self.is_number else _PLAIN_TEXT
        return value if value != DEFAULT_PARTITION and usable.fullmatch(value) else None

    def divided(self, names: Sequence[str]) -> tuple[Sequence[int], Sequence[int]]:
        """Return the positions of the names, ordered by value, and of those that no condition can cover."""
        usable, others = array("I"), array("I")
        ordered, last = True, None
        for at, name in enumerate(names):
            if (value := self.value(name)) is None:
                others.append(at)
                continue
            usable.append(at)
            rank: Any = int(value) if self.is_number else value
            # The metastore returns the names in alphabetical order, which mostly is the order of values too.
            ordered = ordered and (last is None or last <= rank)
            last = rank
        if not ordered:
            usable = array("I", sorted(usable, key=lambda at: self._rank(names[at])))
        return usable, others

    def groups(self, names: Sequence[str], ordered: Sequence[int]) -> Iterator[tuple[str, list[str]]]:
        """Yield each value with the partition names that have it.

        :param ordered: positions in the order of values.
        """
        for _, run in groupby((names[at] for at in ordered), self._rank):
            group = list(run)
            yield self.value(group[0]) or "", group

    def _rank(self, name: str) -> Any:
        value = self.value(name) or ""
        return int(value) if self.is_number else value

    def page(self, names: list[str], low: str, high: str) -> Page:
        """Return the page of the names between two values."""
        first, last = (value if self.is_number else f"'{value}'" for value in (low, high))
        return Page(names=names, condition=f"{self.name} >= {first} and {self.name} <= {last}")


def _best_key(keys: Sequence[tuple[str, str]], names: Sequence[str]) -> _Key | None:
    """Return the partition key with the most distinct values that a condition can contain."""
    candidates = [
        _Key(key, place, kind in _WHOLE_NUMBERS)
        for place, (key, kind) in enumerate(keys)
        if kind in _WHOLE_NUMBERS | _TEXTS and _PLAIN_KEY.fullmatch(key)
    ]
    best, most = None, 0
    for key in candidates:
        values = (value for name in names if (value := key.value(name)) is not None)
        count = len(set(values)) if len(candidates) > 1 else sum(1 for _ in islice(values, 1))
        if count > most:
            best, most = key, count
    return best

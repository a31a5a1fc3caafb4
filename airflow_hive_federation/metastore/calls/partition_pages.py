"""How many partitions are asked for in one answer, and by which condition. Pure.

Asked for by name, a database that cannot use its index for long lists (Derby) compares each partition of the
table with each name of the list: in all, the square of their number. Asked for by a range of one partition
key, it compares each partition with two values, once a page.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from airflow_hive_federation.model.partitions import DEFAULT_PARTITION, unescape

#: What a page of partitions may take in Python, and what was measured of one (docs/metastore-client.md).
_PAGE_BYTES, _PARTITION_BYTES, _COLUMN_BYTES = 64 << 20, 4000, 270
#: What the statistics of a column of a partition take.
_STATISTICS_BYTES = 1200
#: So few partitions need no page, whatever their columns.
ONE_PAGE = 1000
_WHOLE_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_TEXTS = frozenset({"string", "date"})
_PLAIN_KEY = re.compile(r"[a-z_][a-z0-9_]*")
_WHOLE_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_PLAIN_TEXT = re.compile(r"[^'\"\\\x00-\x1f]+")


@dataclass(frozen=True, kw_only=True)
class Page:
    """Partitions that are asked for together.

    :param names: theirs.
    :param condition: on a partition key, which holds for them, and perhaps for others, by the order of
        characters; the database's may be another. Empty if there is none.
    :param everything: these are all partitions of the table.
    """

    names: Sequence[str]
    condition: str = ""
    everything: bool = False


def page_size(columns: int, *, with_column_stats: bool = False) -> int:
    """How many partitions make a page, each of which has so many columns."""
    column_bytes = _COLUMN_BYTES + _STATISTICS_BYTES * with_column_stats
    return max(ONE_PAGE, _PAGE_BYTES // (_PARTITION_BYTES + column_bytes * columns))


def pages(keys: Sequence[tuple[str, str]], names: Sequence[str], size: int) -> Iterator[Page]:
    """Divide partitions into pages; beside the names, a number is kept for each.

    :param keys: names and types of the partition keys.
    :param names: the partitions' names.
    :param size: partitions a page; one has more if more share the key's value.
    """
    key = _best_key(keys, names)
    others: Sequence[int] = range(len(names))
    if key is not None:
        usable, others = key.divided(names)
        some, low, high = list[str](), "", ""
        for value, group in key.groups(names, usable):
            if some and len(some) + len(group) > size:
                yield key.page(some, low, high)
                some = []
            low, high = (low if some else value), value
            some += group
        yield key.page(some, low, high)
    for start in range(0, len(others), size):
        yield Page(names=[names[index] for index in others[start : start + size]])


@dataclass(frozen=True)
class _Key:
    """A partition key whose values a condition can name, apart from a few.

    :param place: among the table's partition keys.
    """

    name: str
    place: int
    is_number: bool

    def value(self, name: str) -> str | None:
        """The value in a partition's name; ``None`` if no condition can name it."""
        value = unescape(name.split("/")[self.place].partition("=")[2])
        usable = _WHOLE_NUMBER if self.is_number else _PLAIN_TEXT
        return value if value != DEFAULT_PARTITION and usable.fullmatch(value) else None

    def divided(self, names: Sequence[str]) -> tuple[Sequence[int], Sequence[int]]:
        """Return the positions of names in the order of their values, and of those no condition can name."""
        usable, others = array("I"), array("I")
        ordered, last = True, None
        for at, name in enumerate(names):
            if (value := self.value(name)) is None:
                others.append(at)
                continue
            usable.append(at)
            rank: Any = int(value) if self.is_number else value
            # The metastore's answer is in the order of names, which mostly is this one, too.
            ordered = ordered and (last is None or last <= rank)
            last = rank
        if not ordered:
            usable = array("I", sorted(usable, key=lambda at: self._rank(names[at])))
        return usable, others

    def groups(self, names: Sequence[str], ordered: Sequence[int]) -> Iterator[tuple[str, list[str]]]:
        """Yield each value with the names that have it.

        :param ordered: positions in the order of values.
        """
        for _, some in groupby((names[at] for at in ordered), self._rank):
            group = list(some)
            yield self.value(group[0]) or "", group

    def _rank(self, name: str) -> Any:
        value = self.value(name) or ""
        return int(value) if self.is_number else value

    def page(self, names: list[str], low: str, high: str) -> Page:
        """The page of the names between two values."""
        first, last = (value if self.is_number else f"'{value}'" for value in (low, high))
        return Page(names=names, condition=f"{self.name} >= {first} and {self.name} <= {last}")


def _best_key(keys: Sequence[tuple[str, str]], names: Sequence[str]) -> _Key | None:
    """The key that tells most partitions apart."""
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

"""How many partitions are asked for in one answer, and by which condition. Pure.

Asked for by name, a database that cannot use its index for long lists (Derby) compares each partition of the
table with each name of the list: in all, the square of their number. Asked for by a range of one partition
key, it compares each partition with two values, once a page.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
    """Divide partitions into pages.

    :param keys: names and types of the partition keys.
    :param names: the partitions' names.
    :param size: partitions a page; one has more if more share the key's value.
    """
    by_value, others = _by_value(keys, names)
    if by_value is not None:
        key, is_number, values = by_value
        ordered = sorted(values, key=int) if is_number else sorted(values)
        first, some = 0, list[str]()
        for place, value in enumerate(ordered):
            some += values[value]
            following = ordered[place + 1 : place + 2]
            if not following or len(some) + len(values[following[0]]) > size:
                low, high = (one if is_number else f"'{one}'" for one in (ordered[first], value))
                yield Page(names=some, condition=f"{key} >= {low} and {key} <= {high}")
                first, some = place + 1, []
    for start in range(0, len(others), size):
        yield Page(names=others[start : start + size])


def _by_value(
    keys: Sequence[tuple[str, str]], names: Sequence[str]
) -> tuple[tuple[str, bool, dict[str, list[str]]] | None, list[str]]:
    """The key that tells most partitions apart, and partitions by its value; those without a usable one."""
    best: tuple[str, bool, dict[str, list[str]]] | None = None
    for place, (key, kind) in enumerate(keys):
        if kind in _WHOLE_NUMBERS | _TEXTS and _PLAIN_KEY.fullmatch(key):
            usable = _WHOLE_NUMBER if kind in _WHOLE_NUMBERS else _PLAIN_TEXT
            found: defaultdict[str, list[str]] = defaultdict(list)
            for name in names:
                value = unescape(name.split("/")[place].partition("=")[2])
                if value != DEFAULT_PARTITION and usable.fullmatch(value):
                    found[value].append(name)
            if found and (best is None or len(found) > len(best[2])):
                best = key, kind in _WHOLE_NUMBERS, found
    if best is None:
        return None, list(names)
    told = {name for some in best[2].values() for name in some}
    return best, [name for name in names if name not in told]

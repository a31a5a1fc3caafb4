"""Identities of rows, by the many.

Rows on end mostly share write id and bucket property, so these are kept once for each run of rows that do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Integers = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Keys:
    """Identities of rows, ascending if nothing else is said.

    :param write_ids: the write id that inserted the rows, of each run.
    :param buckets: their bucket property, of each run.
    :param starts: the first row of each run.
    :param row_id: number in that write id, bucket and statement, of each row.
    """

    write_ids: Integers
    buckets: Integers
    starts: Integers
    row_id: Integers

    @classmethod
    def of(cls, write_id: Integers, bucket: Integers, row_id: Integers) -> Keys:
        """Make them of columns that tell all three of each row, in any order."""
        changes = (write_id[1:] != write_id[:-1]) | (bucket[1:] != bucket[:-1])
        starts = np.concatenate((np.arange(min(1, len(row_id))), np.flatnonzero(changes) + 1))
        return cls(write_id[starts], bucket[starts], starts, row_id)

    def __len__(self) -> int:
        return len(self.row_id)

    @property
    def ends(self) -> Integers:
        """The row after each run."""
        return np.append(self.starts, len(self))[1:]

    def at(self, index: int) -> tuple[int, int, int]:
        """One identity."""
        run = int(np.searchsorted(self.starts, index % len(self), side="right")) - 1
        return int(self.write_ids[run]), int(self.buckets[run]), int(self.row_id[index])

    def part(self, start: int, end: int) -> Keys:
        """A slice, which is not empty."""
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        last = int(np.searchsorted(self.starts, end, side="left"))
        starts = np.maximum(self.starts[first:last] - start, 0)
        return Keys(self.write_ids[first:last], self.buckets[first:last], starts, self.row_id[start:end])

    def where(self, mask: Mask) -> Keys:
        """Those that a mask says."""
        gone = np.flatnonzero(~mask)
        starts = self.starts - np.searchsorted(gone, self.starts)
        left = np.append(starts, len(self) - len(gone))[1:] > starts
        return Keys(self.write_ids[left], self.buckets[left], starts[left], self.row_id[mask])

    def up_to(self, key: tuple[int, int, int]) -> int:
        """How many are not above ``key``."""
        start, end = self.places(*key[:2])
        return start + int(np.searchsorted(self.row_id[start:end], key[2], side="right"))

    def places(self, write_id: int, bucket: int) -> tuple[int, int]:
        """Where rows of a write id and bucket property begin and end, or where they would be."""
        first, last = 0, len(self.starts)
        for column, value in ((self.write_ids, write_id), (self.buckets, bucket)):
            part = column[first:last]
            last = first + int(np.searchsorted(part, value, side="right"))
            first += int(np.searchsorted(part, value, side="left"))
        return self._start(first), self._start(last)

    def is_ascending(self) -> bool:
        """Whether they are in order, and none is there twice."""
        rises = self.row_id[1:] > self.row_id[:-1]
        write_id, bucket, ends = np.diff(self.write_ids), np.diff(self.buckets), self.starts[1:] - 1
        rises[ends] = (write_id > 0) | ((write_id == 0) & ((bucket > 0) | ((bucket == 0) & rises[ends])))
        return bool(rises.all())

    def _start(self, run: int) -> int:
        return int(self.starts[run]) if run < len(self.starts) else len(self)


def joined_keys(some: Sequence[Keys]) -> Keys:
    """Several identities after each other."""
    before = np.cumsum([0, *map(len, some)])
    return Keys(
        np.concatenate([one.write_ids for one in some]),
        np.concatenate([one.buckets for one in some]),
        np.concatenate([one.starts + count for one, count in zip(some, before, strict=False)]),
        np.concatenate([one.row_id for one in some]),
    )


def in_order(keys: Keys, current: Integers) -> tuple[Keys, Integers]:
    """Sort delete events, the later ones of a row first (``OrcRawRecordMerger.ReaderKey.compareTo``).

    :param keys: of the deleted rows, in any order.
    :param current: write ids that deleted them.
    """
    counts = keys.ends - keys.starts
    write_id, bucket = np.repeat(keys.write_ids, counts), np.repeat(keys.buckets, counts)
    order = np.lexsort((-current, keys.row_id, bucket, write_id))
    return Keys.of(write_id[order], bucket[order], keys.row_id[order]), current[order]


def kept(rows: Keys, deleted: Sequence[Keys]) -> Mask | None:
    """Which rows remain; ``None`` if all do.

    :param rows: without duplicates.
    """
    mask = np.ones(len(rows), np.bool_)
    for gone in deleted:
        for write_id, bucket, start, end in zip(
            gone.write_ids.tolist(), gone.buckets.tolist(), gone.starts, gone.ends, strict=True
        ):
            first, last = rows.places(write_id, bucket)
            if first < last:
                mask[first:last][_found(rows.row_id[first:last], gone.row_id[start:end])] = False
    return None if mask.all() else mask


def _found(have: Integers, wanted: Integers) -> Integers:
    """Where the wanted ones are among ascending numbers; not all of them need be."""
    at: Integers
    if have[-1] - have[0] == len(have) - 1:
        # None is missing, as in most files: a row's number tells its place.
        at = wanted - have[0]
        is_found = (at >= 0) & (at < len(have))
    else:
        at = np.minimum(np.searchsorted(have, wanted), len(have) - 1)
        is_found = have[at] == wanted
    return at[is_found]

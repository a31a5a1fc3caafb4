"""Stores the identities (``ROW__ID``) of many rows in arrays.

Consecutive rows mostly share write id and bucket property, so both are stored once per run of such rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Keys:
    """The identities of rows, ascending unless stated otherwise.

    :param write_ids: write id that inserted the rows, per run.
    :param buckets: bucket property of the rows, per run.
    :param starts: first row of each run.
    :param row_id: number in the write id, bucket and statement, per row.
    """

    write_ids: Integers
    buckets: Integers
    starts: Integers
    row_id: Integers

    @classmethod
    def of(cls, write_id: Integers, bucket: Integers, row_id: Integers) -> Keys:
        """Make identities from columns of write ids, bucket properties and row ids, in any order."""
        changes = (write_id[1:] != write_id[:-1]) | (bucket[1:] != bucket[:-1])
        starts = np.concatenate((np.arange(min(1, len(row_id))), np.flatnonzero(changes) + 1))
        return cls(write_id[starts], bucket[starts], starts, row_id)

    def __len__(self) -> int:
        return len(self.row_id)

    @property
    def ends(self) -> Integers:
        """Return the row after each run."""
        return np.append(self.starts, len(self))[1:]

    def at(self, index: int) -> tuple[int, int, int]:
        """Return the identity of one row."""
        run = int(np.searchsorted(self.starts, index % len(self), side="right")) - 1
        return int(self.write_ids[run]), int(self.buckets[run]), int(self.row_id[index])

    def part(self, start: int, end: int) -> Keys:
        """Return the identities of a range of rows, which must not be empty."""
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        last = int(np.searchsorted(self.starts, end, side="left"))
        starts = np.maximum(self.starts[first:last] - start, 0)
        return Keys(self.write_ids[first:last], self.buckets[first:last], starts, self.row_id[start:end])

    def where(self, mask: Mask) -> Keys:
        """Return the identities that a mask selects."""
        gone = np.flatnonzero(~mask)
        starts = self.starts - np.searchsorted(gone, self.starts)
        left = np.append(starts, len(self) - len(gone))[1:] > starts
        return Keys(self.write_ids[left], self.buckets[left], starts[left], self.row_id[mask])

    def up_to(self, key: tuple[int, int, int]) -> int:
        """Return the number of identities up to and including ``key``."""
        start, end = self.places(*key[:2])
        return start + int(np.searchsorted(self.row_id[start:end], key[2], side="right"))

    def places(self, write_id: int, bucket: int) -> tuple[int, int]:
        """Return begin and end of the rows of a write id and bucket property, or their insertion place."""
        first, last = 0, len(self.starts)
        for column, value in ((self.write_ids, write_id), (self.buckets, bucket)):
            part = column[first:last]
            last = first + int(np.searchsorted(part, value, side="right"))
            first += int(np.searchsorted(part, value, side="left"))
        return self._start(first), self._start(last)

    def is_ascending(self) -> bool:
        """Return true if the identities are in order and unique."""
        rises = self.row_id[1:] > self.row_id[:-1]
        write_id, bucket, ends = np.diff(self.write_ids), np.diff(self.buckets), self.starts[1:] - 1
        rises[ends] = (write_id > 0) | ((write_id == 0) & ((bucket > 0) | ((bucket == 0) & rises[ends])))
        return bool(rises.all())

    def _start(self, run: int) -> int:
        return int(self.starts[run]) if run < len(self.starts) else len(self)


def joined_keys(parts: Sequence[Keys]) -> Keys:
    """Concatenate identities."""
    before = np.cumsum([0, *map(len, parts)])
    return Keys(
        np.concatenate([part.write_ids for part in parts]),
        np.concatenate([part.buckets for part in parts]),
        np.concatenate([part.starts + count for part, count in zip(parts, before, strict=False)]),
        np.concatenate([part.row_id for part in parts]),
    )


def in_order(keys: Keys, current: Integers) -> tuple[Keys, Integers]:
    """Sort delete events, the later ones of a row first (``OrcRawRecordMerger.ReaderKey.compareTo``).

    :param keys: identities of the deleted rows, in any order.
    :param current: write ids that deleted the rows.
    """
    counts = keys.ends - keys.starts
    write_id, bucket = np.repeat(keys.write_ids, counts), np.repeat(keys.buckets, counts)
    order = np.lexsort((-current, keys.row_id, bucket, write_id))
    return Keys.of(write_id[order], bucket[order], keys.row_id[order]), current[order]


def kept(rows: Keys, deleted: Sequence[Keys]) -> Mask | None:
    """Return a mask of the rows that no delete event deletes; ``None`` if all rows remain.

    :param rows: identities of the rows, without duplicates.
    :param deleted: identities of deleted rows.
    """
    mask = np.ones(len(rows), np.bool_)
    for gone in deleted:
        for write_id, bucket, start, end in zip(
            gone.write_ids.tolist(), gone.buckets.tolist(), gone.starts, gone.ends, strict=True
        ):
            first, last = rows.places(write_id, bucket)
            if first < last:
                mask[first:last][_places(rows.row_id[first:last], gone.row_id[start:end])] = False
    return None if mask.all() else mask


def _places(have: Integers, wanted: Integers) -> Integers:
    """Return the places of the wanted numbers among ascending numbers; missing numbers are left out."""
    at: Integers
    if have[-1] - have[0] == len(have) - 1:
        # No number is missing, as in most files, so a row's number gives its place.
        at = wanted - have[0]
        is_found = (at >= 0) & (at < len(have))
    else:
        at = np.minimum(np.searchsorted(have, wanted), len(have) - 1)
        is_found = have[at] == wanted
    return at[is_found]

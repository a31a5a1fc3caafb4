"""Transactions of the source that one transaction of the target stands for. Pure.

A transaction has one write id in a table. So consecutive ends of transactions that wrote to different tables
can be one commit on the target, which costs as much as each of them. Readers of the target then see the
source as it was after the last of them, and never as it was in between.

The first of a run leads it. So a load that was killed, and whose successor knows of more transactions, has
opened the same ones on the target: what is added at the end changes no leader of what was before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from airflow_hive_federation.replication.pairs import Pairs


class Merging:
    """Runs of transactions, each of which its first one leads.

    :param led: transactions that ended, in the source's order, and the leader of each.
    """

    def __init__(self, led: Iterable[tuple[int, int]]) -> None:
        pairs = Pairs(led)
        ended = np.fromiter((txn for txn, _ in pairs), np.int64)
        leaders = np.fromiter((leader for _, leader in pairs), np.int64)
        order = np.argsort(ended, kind="stable")
        self._ended, self._leaders = ended[order], leaders[order]
        self._runs = leaders[np.flatnonzero(np.diff(leaders, append=-1))]

    @property
    def leaders(self) -> Iterator[int]:
        """What is to be ended on the target, in this order."""
        return iter(self._runs.tolist())

    def leader(self, txn: int) -> int:
        """The transaction that stands for one on the target; itself, unless it has ended."""
        place = int(np.searchsorted(self._ended, txn))
        found = place < len(self._ended) and self._ended[place] == txn
        return int(self._leaders[place]) if found else txn

    def merged(self, writes: Mapping[str, Pairs]) -> dict[str, Pairs]:
        """Write ids by the transactions that stand for those that have them."""
        return {
            table: Pairs((self.leader(txn), write) for txn, write in pairs) for table, pairs in writes.items()
        }


class _Tables:
    """Which tables a transaction wrote to, by their numbers."""

    def __init__(self, writes: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        txns = [np.fromiter((txn for txn, _ in pairs), np.int64) for pairs in writes.values()]
        numbers = [np.full(len(some), number, np.int32) for number, some in enumerate(txns)]
        every = np.concatenate([np.empty(0, np.int64), *txns])
        order = np.argsort(every, kind="stable")
        self._txns = every[order]
        self._numbers = np.concatenate([np.empty(0, np.int32), *numbers])[order]

    def of(self, txn: int) -> set[int]:
        first, last = np.searchsorted(self._txns, [txn, txn + 1])
        return set(self._numbers[first:last].tolist())


def leaders(
    ends: Iterable[int], writes: Mapping[str, Sequence[tuple[int, int]]], alone: Collection[int] = ()
) -> Iterator[int]:
    """The leader of each transaction, in their order.

    :param ends: transactions that ended, in the source's order.
    :param writes: table → pairs of transaction and write id, those included that the target has already.
    :param alone: transactions that the target may have opened for themselves, before they had ended.
    """
    tables, alone = _Tables(writes), frozenset(alone)
    leader: int | None = None
    written: set[int] = set()
    for txn in ends:
        its_own = tables.of(txn)
        if leader is None or txn in alone or leader in alone or not written.isdisjoint(its_own):
            leader, written = txn, set()
        written |= its_own
        yield leader

"""Transactions of the source that one transaction of the target stands for. Pure.

A transaction has one write id in a table. So consecutive ends of transactions that wrote to different tables
can be one commit on the target, which costs as much as each of them. Readers of the target then see the
source as it was after the last of them, and never as it was in between.

The first of a run leads it. So a load that was killed, and whose successor knows of more transactions, has
opened the same ones on the target: what is added at the end changes no leader of what was before. Nor does
a table that was dropped meanwhile, though runs might be longer without it: some of a transaction's write ids
may have been given to its leader already, and the others must not go to another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from airflow_hive_federation.replication.dump.pairs import Pairs


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

    def __contains__(self, txn: int) -> bool:
        return self._place(txn) is not None

    def leader(self, txn: int) -> int:
        """The transaction that stands for one on the target; itself, unless it has ended."""
        place = self._place(txn)
        return txn if place is None else int(self._leaders[place])

    def merged(self, writes: Mapping[str, Pairs]) -> dict[str, Pairs]:
        """Write ids by the transactions that stand for those that have them."""
        return {
            table: Pairs((self.leader(txn), write) for txn, write in pairs) for table, pairs in writes.items()
        }

    def _place(self, txn: int) -> int | None:
        place = int(np.searchsorted(self._ended, txn))
        return place if place < len(self._ended) and self._ended[place] == txn else None


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
    ends: Iterable[int],
    writes: Mapping[str, Sequence[tuple[int, int]]],
    alone: Collection[int] = (),
    begun: Sequence[Merging] = (),
) -> Iterator[int]:
    """The leader of each transaction, in their order.

    One that wrote nowhere leads itself: its end may be foreseen, for its tables were dropped, and it may yet
    write to others.

    :param ends: transactions that ended, in the source's order.
    :param writes: table → pairs of transaction and write id, those included that the target has already.
    :param alone: transactions that the target may have opened for themselves, before they had ended.
    :param begun: how loads that were begun, and not finished, merge the first of them.
    """
    tables, alone = _Tables(writes), frozenset(alone)
    leader, written = 0, set[int]()  # no transaction has the id 0
    for txn in ends:
        its_own = tables.of(txn)
        settled = next((one.leader(txn) for one in begun if txn in one), None)
        if settled is not None:
            goes_on = settled == leader
        else:
            apart = not (leader and its_own) or txn in alone or leader in alone
            goes_on = not apart and written.isdisjoint(its_own)
        if not goes_on:
            leader, written = txn if settled is None else settled, set()
        written |= its_own
        yield leader

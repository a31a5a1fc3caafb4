"""Merges transactions of the source, so that one transaction of the target stands for several. Pure.

A transaction has one write id per table. So consecutive ends of transactions that wrote to different tables
can be one commit on the target, which costs as much as each of them. Readers of the target then see the
source's state after the last of them, and never a state in between.

The first transaction of a run leads it. A load that was killed has opened the same leaders on the target as
its successor, although the successor knows more transactions: none of these joins a run of the killed load.
It may precede other members of that run that have written to the same tables, because a transaction that
ended without an event comes last in each dump. Nor does a table that was dropped meanwhile change a leader,
although runs could be longer without it: some of a transaction's write ids may have been given to its leader
already, and the others must not go to another leader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from airflow_hive_federation.replication.dump.pairs import Pairs


class Merging:
    """The runs of transactions, each led by its first one.

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
        """Return the transactions to end on the target, in this order."""
        return iter(self._runs.tolist())

    def __contains__(self, txn: int) -> bool:
        return self._place(txn) is not None

    def leader(self, txn: int) -> int:
        """Return the transaction that stands for another on the target; before its end, it is itself."""
        place = self._place(txn)
        return txn if place is None else int(self._leaders[place])

    def merged(self, writes: Mapping[str, Pairs]) -> dict[str, Pairs]:
        """Return the write ids by the transactions that stand for their owners."""
        return {
            table: Pairs((self.leader(txn), write) for txn, write in pairs) for table, pairs in writes.items()
        }

    def _place(self, txn: int) -> int | None:
        place = int(np.searchsorted(self._ended, txn))
        return place if place < len(self._ended) and self._ended[place] == txn else None


class _Tables:
    """The tables to which each transaction wrote, by their numbers."""

    def __init__(self, writes: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        txns = [np.fromiter((txn for txn, _ in pairs), np.int64) for pairs in writes.values()]
        numbers = [np.full(len(column), number, np.int32) for number, column in enumerate(txns)]
        all_txns = np.concatenate([np.empty(0, np.int64), *txns])
        order = np.argsort(all_txns, kind="stable")
        self._txns = all_txns[order]
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
    """Yield the leader of each transaction, in their order.

    A transaction without writes leads itself. Its end may be foreseen, because its tables were dropped, and
    it may yet write to others.

    :param ends: transactions that ended, in the source's order.
    :param writes: table → pairs of transaction and write id, including those that the target already has.
    :param alone: transactions that the target may have opened for themselves, before they had ended.
    :param begun: mergings of loads that were begun and not finished, for the first transactions.
    """
    tables, alone = _Tables(writes), frozenset(alone)
    leader, written = 0, set[int]()  # No transaction has the id 0.
    for txn in ends:
        own_tables = tables.of(txn)
        settled = next((merging.leader(txn) for merging in begun if txn in merging), None)
        if settled is not None:
            continues = settled == leader
        else:
            apart = not (leader and own_tables) or txn in alone or leader in alone
            is_begun = any(leader in merging for merging in begun)
            continues = not (apart or is_begun) and written.isdisjoint(own_tables)
        if not continues:
            leader, written = txn if settled is None else settled, set()
        written |= own_tables
        yield leader

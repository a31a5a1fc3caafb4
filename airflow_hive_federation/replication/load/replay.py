"""Replays the source's transactions on the target.

A transaction of the target stands for one of the source's that wrote to the database, or for several (see
:mod:`.merging`), and has its write ids. The metastore keeps the map between the two while it is open
(``REPL_TXN_MAP``). All transactions are opened, and all write ids allocated, before the first is ended, and
only write ids above a table's highest one are allocated. So a replay that was killed and is repeated opens no
transaction that it has ended. If opened again, such a transaction would be a new one, which no load ends, and
which holds back the target's cleaner.

A transaction that the source aborted is *committed* here. Its files were never copied, nor its rows in files
that it shares with others, so no row becomes visible. An abort would make its write ids invalid for some
seconds, until the metastore forgets them: a base that the source has compacted up to such a write id, or a
statistic of it, would mean one thing now and another a moment later.

A metastore that takes too long to open transactions (``metastore.txn.opentxn.timeout``, one second) removes
them, but not from the map, and returns them as if they had been open before (``TxnHandler.openTxns``). No
call can use them, and none removes them from the map. Such a transaction of the source is opened under
another number.
"""

from __future__ import annotations

import hashlib
import logging
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, groupby
from typing import TYPE_CHECKING

import numpy as np

from airflow_hive_federation.errors import (
    MetastoreUnreachableError,
    NoSuchTransactionError,
    TargetChangedError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.progress.kinds import Step
from airflow_hive_federation.progress.observers import Steps
from airflow_hive_federation.replication.dump.increment_plan import allocation_runs
from airflow_hive_federation.replication.dump.merging import Merging
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.waiting import PollPolicy, retry

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient

logger = logging.getLogger(__name__)

#: The metastore opens at most this many in one call (``metastore.txn.max.open.batch``).
_OPENED_PER_CALL = 1000
#: This is added to a transaction's number to get another one: it exceeds all numbers that a source will have.
_ANEW = 1 << 40
#: The metastore keeps at most this many characters of a host (``TXNS.TXN_HOST``).
_HOST_LENGTH = 128
#: The pauses between calls that fail on a gap in the numbers of open transactions.
_GAPS = PollPolicy(first_s=0.5, factor=2.0, longest_s=2.0)

#: Names of groups begin with this in the metastore's map. An abort looks up the database that is the first
#: part of the name, and fails without one (``AbortTxnsFunction``); this one always exists.
_ALWAYS = "default"
_GROUPS = f"{_ALWAYS}.group "

#: By table, pairs of the source's transaction and write id, ascending by write id.
Writes = Mapping[str, Sequence[tuple[int, int]]]


class _TxnMap(Mapping[int, int]):
    """Maps the source's transactions to the target's, in sixteen bytes each."""

    def __init__(self) -> None:
        self._sources: array[int] = array("q")
        self._targets: array[int] = array("q")

    def add(self, opened: Mapping[int, int]) -> None:
        """Add transactions above those in the map."""
        for source in sorted(opened):
            self._sources.append(source)
            self._targets.append(opened[source])

    def __getitem__(self, source: int) -> int:
        place = bisect_left(self._sources, source)
        if place == len(self._sources) or self._sources[place] != source:
            raise KeyError(source)
        return self._targets[place]

    def __iter__(self) -> Iterator[int]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


class OpenedTransactions:
    """The transactions that a replay has opened on the target; the loads of a group share them.

    :ivar target_txns: maps the source's transactions to the target's.
    :ivar numbers: replacement numbers, for those of the source's transactions that have one.
    """

    def __init__(self) -> None:
        self.target_txns = _TxnMap()
        self.numbers: dict[int, int] = {}


class Replay:
    """Replays transactions of a policy.

    The policies of a consistency group share the names under which the metastore keeps its map. So one
    transaction of the target has the write ids of all databases of the group, and one commit shows them.

    :param client: client of the target.
    :param opened: the transactions of all members of the policy's group, which are open already.
    :param table: the only table with write ids in the replay, whose map is its own; empty for all tables.
    """

    def __init__(
        self,
        client: MetastoreClient,
        policy: ReplicationPolicy,
        *,
        opened: OpenedTransactions | None = None,
        table: str = "",
    ) -> None:
        self._client = client
        self._database = policy.target_database
        # Hive's own loads use this name (HiveUtils.getReplPolicy).
        self._repl_policy = f"{_GROUPS}{policy.group}" if policy.group else f"{policy.target_database}.*"
        if table:
            self._repl_policy = f"{policy.target_database}.{table}"
        self._host = _host(policy)
        self._is_shared = opened is not None
        self.opened = opened or OpenedTransactions()
        self._target_txns = self.opened.target_txns
        self._numbers = self.opened.numbers

    def open(self, writes: Writes, step: Steps | None = None) -> None:
        """Open the transactions of write ids, all of a cycle at once, so that they ascend as the source's do.

        :param writes: write ids above the highest of their tables.
        """
        if self._is_shared:
            return
        source_txns = np.unique(np.fromiter(_transactions(writes), np.int64))
        for first in range(0, len(source_txns), _OPENED_PER_CALL):
            if step:
                step(Step.OPEN_TRANSACTIONS)
            self._target_txns.add(self._opened(source_txns[first : first + _OPENED_PER_CALL].tolist()))

    def allocate(self, writes: Writes, step: Steps | None = None) -> None:
        """Allocate write ids to the transactions that were opened.

        :param writes: write ids above the highest of their tables.
        :raises TargetChangedError: the target gave other write ids, because somebody wrote to it.
        """
        for table, pairs in writes.items():
            for run in allocation_runs(pairs, self._target_txns):
                if step:
                    step(Step.ALLOCATE, table)
                self._allocate(table, {txn: (self._target_txns[txn], write) for txn, write in run})

    def end(self, txn_id: int) -> None:
        """End a transaction of the source, unless it was ended before or never opened."""
        for number in count(self._numbers.get(txn_id, txn_id), _ANEW):
            try:
                self._client.commit_txn(
                    number,
                    kind=types.TxnType.REPL_CREATED,
                    repl_policy=self._repl_policy,
                    # The check for conflicts is disabled, because the source has decided.
                    excl_write_enabled=True,
                )
            except NoSuchTransactionError:
                # The map holds a removed transaction: an earlier run has opened it under the next number.
                continue
            return

    def to_end(self, merging: Merging, ends: Iterable[int]) -> Iterator[int]:
        """Return the transactions to end, in this order: those that stand for others.

        Transactions that an earlier run has opened, with other tables to examine, are ended in their places
        too.

        :param ends: transactions that ended, in the source's order.
        """
        has_others = not self._ours() <= set(self._target_txns.values())
        return iter(ends) if has_others else merging.leaders

    def sweep(self, still_open: Sequence[int]) -> list[int]:
        """Abort transactions of this policy that stand for no open one of the source, and return their ids.

        The metastore then marks the target database for Hive's ``REPL LOAD``, which refuses it from then on
        (:data:`.markers.INCOMPATIBLE`). A target of this package is none of ``REPL LOAD``.

        :param still_open: the source's open transactions, all of which have been opened here.
        """
        own_txns = self._ours()
        if not own_txns:
            return []
        expected = set(self._existing({txn: self._open_one(txn) for txn in still_open}).values())
        dangling = sorted(own_txns - expected)
        if dangling and self._repl_policy.startswith(_GROUPS):
            self._abort_of_group(dangling)
        elif dangling:
            self._client.abort_txns(dangling)
        return dangling

    def _abort_of_group(self, txns: Sequence[int]) -> None:
        """Abort transactions, and take back the mark that the metastore gives to a database of others.

        A process that is killed in between leaves the mark, which only Hive's ``REPL LOAD`` reads.
        """
        was_marked = markers.INCOMPATIBLE in (self._client.get_database(_ALWAYS).parameters or {})
        self._client.abort_txns(txns)
        database = self._client.get_database(_ALWAYS)
        if was_marked or markers.INCOMPATIBLE not in (database.parameters or {}):
            return
        del database.parameters[markers.INCOMPATIBLE]
        self._client.alter_database(_ALWAYS, database)

    def _ours(self) -> set[int]:
        return {
            txn.id
            for txn in self._open_transactions()
            if txn.hostname == self._host and txn.state == types.TxnState.OPEN
        }

    def _open_transactions(self) -> Sequence[types.TxnInfo]:
        # The metastore briefly counts removed numbers as open, and fails because no transaction has them.
        return retry(
            lambda: self._client.call("get_open_txns_info").open_txns or (),
            _GAPS,
            tries=4,
            on=MetastoreUnreachableError,
        )

    def _opened(self, source_txns: Sequence[int]) -> dict[int, int]:
        before = self._client.get_open_txns().txn_high_water_mark or 0
        target_txns = self._open(source_txns)
        if len(target_txns) == len(source_txns) and min(target_txns) > before:
            return self._existing(dict(zip(source_txns, target_txns, strict=True)))
        # Some were open already: then the metastore returns only those, in no order.
        return self._existing({txn: self._open_one(txn) for txn in source_txns})

    def _existing(self, opened: Mapping[int, int]) -> dict[int, int]:
        """Reopen the transactions of which the target has only the number."""
        existing = dict(opened)
        while missing := self._missing(existing):
            logger.warning(
                "The target %s took too long to open %s transactions: they are opened again. "
                "Raise its metastore.txn.opentxn.timeout if this warning recurs.",
                self._database,
                len(missing),
            )
            for txn in missing:
                self._numbers[txn] = self._numbers.get(txn, txn) + _ANEW
                existing[txn] = self._open_one(txn)
        return existing

    def _missing(self, opened: Mapping[int, int]) -> list[int]:
        removed = {
            number for first, last in _ranges(opened.values()) for number in self._removed(first, last)
        }
        return [txn for txn, number in opened.items() if number in removed]

    def _removed(self, first: int, last: int) -> Iterable[int]:
        # This is one statement if all exist. A list of the open ones would contain removed ones for a moment,
        # too.
        answer = self._client.heartbeat_txn_range(first, last)
        return answer.nosuch or ()

    def _open_one(self, source_txn: int) -> int:
        (target,) = self._open([self._numbers.get(source_txn, source_txn)])
        return target

    def _open(self, source_txns: Sequence[int]) -> list[int]:
        return self._client.open_txns(
            len(source_txns),
            host=self._host,
            kind=types.TxnType.REPL_CREATED,
            repl_policy=self._repl_policy,
            source_txn_ids=source_txns,
        )

    def _allocate(self, table: str, run: Mapping[int, tuple[int, int]]) -> None:
        given = self._client.allocate_table_write_ids(
            self._database,
            table,
            repl_policy=self._repl_policy,
            source_write_ids={self._numbers.get(txn, txn): write for txn, (_, write) in run.items()},
        )
        if given != dict(run.values()):
            raise TargetChangedError(
                f"Table {self._database}.{table} of the target gave write ids {sorted(given.values())} where "
                f"the source has {sorted(write for _, write in run.values())}: somebody else writes there.",
                remedy="Stop the writer, drop the table on the target, and run the cycle again.",
                differences=[table],
            )


def _host(policy: ReplicationPolicy) -> str:
    """Return the host that the metastore shows for the transactions of a policy, or of its group.

    Only one policy replicates into a database, and only one group of a name into a metastore. Policies of
    several databases may share a name, and must not end each other's transactions.
    """
    owner = f"group {policy.group}" if policy.group else policy.target_database
    host = f"hive-federation replication {owner}"
    if len(host) > _HOST_LENGTH:
        digest = hashlib.sha256(owner.encode()).hexdigest()[:12]
        host = f"{host[: _HOST_LENGTH - len(digest) - 1]} {digest}"
    return host


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number of each run of consecutive numbers."""
    for _, group in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        yield run[0], run[-1]


def _transactions(writes: Writes) -> Iterator[int]:
    return (txn for pairs in writes.values() for txn, _ in pairs)

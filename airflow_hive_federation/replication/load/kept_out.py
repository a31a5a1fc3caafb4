"""Keeps readers out of a table while an object store moves its directories file by file, also beyond a kill.

A lock of an ordinary transaction ends with its timeout (``hive.txn.timeout``), minutes after its load was
killed: readers would then read directories of which a part is in place. So the lock belongs to a transaction
of the kind that replays a source's (``TxnType.REPL_CREATED``). It lasts without heartbeats, for
``hive.repl.txn.timeout`` (``PerformTimeoutsFunction``), which is 11 days by default. The metastore's map of
replayed transactions leads the next load to it, as it does to the transactions of the source.

A directory that only the commit of a transaction shows (``base_5_v77``), as compactions make it, would need
no lock. ``docs/decisions/readers-wait-for-whole-directories.md`` explains why loads make none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import HiveFederationError, LockTimeoutError, TransactionAbortedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.transactions.locks import excluding_components, granted
from airflow_hive_federation.transactions.transaction import LOCK_POLICY

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient

logger = logging.getLogger(__name__)

#: Number of the transaction in the map of its table. It is no transaction of a source, and none of the write
#: ids by which a take-over numbers others of the table, nor such a number opened anew (:mod:`.replay`).
_NUMBER = 1 << 39


class KeptOut:
    """A transaction of the target that keeps the readers of a table out.

    :param client: client of the target.
    :param policy: the policy whose target has the table.
    :param table: name of the table.
    :ivar is_needed: the table may have a directory of which a part is in place.
    """

    def __init__(self, client: MetastoreClient, policy: ReplicationPolicy, table: str) -> None:
        self._client = client
        self._database, self._table = policy.target_database, table
        self._replay = Replay(client, policy, table=table)
        before = client.get_open_txns().txn_high_water_mark or 0
        self._replay.open({table: [(_NUMBER, 0)]})
        self._txn_id = self._replay.opened.target_txns[_NUMBER]
        #: A killed load has opened it, and may have moved a part of a directory.
        self.is_needed = self.is_left = self._txn_id <= before

    def lock(self, check: Callable[[], None]) -> None:
        """Request the lock, unless a killed load has it, and wait until all readers have ended.

        :param check: runs before each look at the lock, and raises if the cycle must end.
        :raises LockTimeoutError: readers do not end.
        """
        answer = self._held() or self._client.lock(
            excluding_components([f"{self._database}.{self._table}"]), txn_id=self._txn_id
        )
        if not granted(self._client, answer, LOCK_POLICY, txn_id=self._txn_id, check=check):
            # Whoever has opened the transaction, nothing was moved without the lock.
            self.is_needed = False
            raise LockTimeoutError(
                f"Transaction {self._txn_id} was not granted its lock on {self._database}.{self._table} in "
                f"{LOCK_POLICY.timeout_s} s.",
                remedy="Find the readers with SHOW LOCKS and SHOW TRANSACTIONS; wait longer, or abort them.",
                tables=[f"{self._database}.{self._table}"],
                lock_id=answer.lockid or 0,
                txn_id=self._txn_id,
            )

    def check(self) -> None:
        """Check that readers are kept out, right before a directory is moved.

        :raises TransactionAbortedError: somebody has aborted the transaction.
        """
        answer = self._client.heartbeat_txn_range(self._txn_id, self._txn_id)
        if self._txn_id in {*(answer.aborted or ()), *(answer.nosuch or ())}:
            raise TransactionAbortedError(
                f"Transaction {self._txn_id}, which kept readers out of {self._database}.{self._table}, was "
                "aborted by request.",
                remedy="Repeat the load, and leave its transactions to it.",
                txn_id=self._txn_id,
            )
        self.is_needed = True

    def end(self) -> None:
        """Let readers in again."""
        self._replay.end(_NUMBER)

    def end_or_keep(self, error: BaseException) -> None:
        """Let readers in after an error, unless they would read a part of a directory."""
        if self.is_needed:
            note = (
                f"Readers of {self._database}.{self._table} are kept out until a load of the replica ends, "
                f"because a directory of the table may be incomplete (transaction {self._txn_id})."
            )
            error.add_note(note)
            logger.warning("%s", note)
            return
        try:
            self.end()
        except HiveFederationError as failure:
            error.add_note(f"Transaction {self._txn_id} of the target could not be ended: {failure}")

    def _held(self) -> types.LockResponse | None:
        """Return the lock that a killed load has requested.

        Another request would wait for the readers that wait for the first.
        """
        if not self.is_left:
            return None
        locks = [
            types.LockResponse(lockid=lock.lockid, state=lock.state)
            for lock in self._client.show_locks(database=self._database, table=self._table)
            if lock.txnid == self._txn_id
        ]
        # A load that was suspended while it requested a lock may have added another one.
        return min(locks, key=lambda lock: lock.state != types.LockState.ACQUIRED, default=None)


def end_left(client: MetastoreClient, policy: ReplicationPolicy, *, keep: Collection[str]) -> list[str]:
    """Let readers in where killed loads have kept them out, and return the names of these tables.

    A metastore that was restored, or whose client has dropped the target database without Hive, still has
    such a lock. Nobody but a load of the policy ends it, also if the table is another one by now.

    :param client: client of the target.
    :param keep: names of tables that may still have a directory of which a part is in place.
    """
    locks = client.show_locks(database=policy.target_database)
    exclusive = {
        str(lock.tablename) for lock in locks if lock.type == types.LockType.EXCLUSIVE and lock.txnid
    }
    tables = sorted(exclusive - {*keep})
    for table in tables:
        # This ends no transaction but that of a load, whoever else may hold a lock.
        Replay(client, policy, table=table).end(_NUMBER)
    return tables


class ReadersKeptOut:
    """Keeps the readers of tables out while their directories are moved.

    :param client: client of the target.
    :param policy: the policy whose target has the tables.
    :param check: runs before each look at a lock, and raises if the cycle must end.
    """

    def __init__(
        self, client: MetastoreClient, policy: ReplicationPolicy, *, check: Callable[[], None]
    ) -> None:
        self._client = client
        self._policy = policy
        self._check = check
        self._left: list[KeptOut] = []

    @contextmanager
    def of(self, table: str) -> Iterator[Callable[[], None]]:
        """Keep the readers of a table out.

        If the block raises an error, readers stay out where they would read a part of a directory. So they
        do at the end of the block if a killed load has left the transaction. That load may have begun with
        directories that this one only replaces, which takes effect when the cycle's transactions end:
        :meth:`let_in`.

        :param table: name of the table.
        :return: a function to call before each directory, which raises if readers may come in again.
        :raises LockTimeoutError: readers of the table do not end.
        """
        kept_out = KeptOut(self._client, self._policy, table)
        try:
            kept_out.lock(self._check)
            yield kept_out.check
        except BaseException as error:
            kept_out.end_or_keep(error)
            raise
        if kept_out.is_left:
            self._left.append(kept_out)
        else:
            kept_out.end()

    def let_in(self) -> None:
        """Let readers in where killed loads have kept them out, after all of the cycle's changes."""
        while self._left:
            self._left.pop().end()

"""Builds the lock requests of reads and writes, waits for locks, and holds them during a block.

The rules are those of Hive 4's ``AcidUtils.makeLockComponents`` with its default settings
(``hive.txn.xlock.write`` and ``hive.txn.xlock.iow``):

=================  ==========================  ==========================
write              exclusive writes (default)  shared writes
=================  ==========================  ==========================
INSERT             SHARED_READ                 SHARED_READ
UPDATE, DELETE     EXCL_WRITE                  SHARED_WRITE
INSERT OVERWRITE   EXCLUSIVE                   EXCL_WRITE
=================  ==========================  ==========================

A SELECT takes SHARED_READ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from enum import StrEnum

from airflow_hive_federation.errors import LockLostError, LockTimeoutError, NoSuchLockError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.transactions.heartbeat import SILENCE_SHARE, transaction_timeout_s
from airflow_hive_federation.waiting import PollPolicy, boot_time_s, wait_until

#: Locks on clusters' metadata and on links name this database. Hive allows no such name, so that they meet no
#: other locks.
LOCK_DATABASE = "hive-federation"


class WriteKind(StrEnum):
    """The kind of change that a statement makes to a table."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, kw_only=True)
class TableWrite:
    """One change that a statement will make to a table.

    :param partition: name of the only partition to write; ``None`` for the whole table.
    :param dynamic: the statement chooses the partitions by its rows: the metastore learns them from
        ``add_dynamic_partitions`` and not from the lock.
    """

    database: str
    table: str
    kind: WriteKind
    partition: str | None = None
    dynamic: bool = False


_EXCLUSIVE = {
    WriteKind.INSERT: types.LockType.SHARED_READ,
    WriteKind.UPDATE: types.LockType.EXCL_WRITE,
    WriteKind.DELETE: types.LockType.EXCL_WRITE,
    WriteKind.OVERWRITE: types.LockType.EXCLUSIVE,
}
_SHARED = {
    **_EXCLUSIVE,
    WriteKind.UPDATE: types.LockType.SHARED_WRITE,
    WriteKind.DELETE: types.LockType.SHARED_WRITE,
    WriteKind.OVERWRITE: types.LockType.EXCL_WRITE,
}
_OPERATIONS = {
    WriteKind.INSERT: types.DataOperationType.INSERT,
    WriteKind.UPDATE: types.DataOperationType.UPDATE,
    WriteKind.DELETE: types.DataOperationType.DELETE,
    WriteKind.OVERWRITE: types.DataOperationType.UPDATE,
}


def lock_components(
    writes: Iterable[TableWrite], *, shared_writes: bool = False
) -> list[types.LockComponent]:
    """Build the lock request of writes.

    ``operationType`` is always set: the server fails on a transactional component without it ("Internal error
    processing lock").

    :param shared_writes: let updates and deletes of one table run in parallel; the first to commit wins.
    """
    kinds = _SHARED if shared_writes else _EXCLUSIVE
    return [
        types.LockComponent(
            type=kinds[write.kind],
            level=types.LockLevel.TABLE if write.partition is None else types.LockLevel.PARTITION,
            dbname=write.database,
            tablename=write.table,
            partitionname=write.partition,
            operationType=operation_type(write.kind),
            isTransactional=True,
            isDynamicPartitionWrite=write.dynamic,
        )
        for write in writes
    ]


def unnoted(components: Iterable[types.LockComponent]) -> list[types.LockComponent]:
    """Return copies of locks for which the metastore records no write (``TxnHandler.enqueueLock``)."""
    copies = [copy(component) for component in components]
    for component in copies:
        component.operationType = types.DataOperationType.NO_TXN
    return copies


def read_components(tables: Iterable[str]) -> list[types.LockComponent]:
    """Build the lock request of a reader.

    :param tables: ``database.table`` names.
    """
    parts = [name.partition(".") for name in tables]
    return [
        types.LockComponent(
            type=types.LockType.SHARED_READ,
            level=types.LockLevel.TABLE,
            dbname=database,
            tablename=table,
            operationType=types.DataOperationType.SELECT,
            isTransactional=True,
        )
        for database, _, table in parts
    ]


def excluding_components(tables: Iterable[str]) -> list[types.LockComponent]:
    """Build the lock request that keeps all readers and writers from tables, and records no write.

    :param tables: ``database.table`` names.
    """
    components = unnoted(read_components(tables))
    for component in components:
        component.type = types.LockType.EXCLUSIVE
    return components


def operation_type(kind: WriteKind) -> types.DataOperationType:
    """Return the metastore's type of a write; an overwrite has the type and the conflicts of an update."""
    return _OPERATIONS[kind]


@contextmanager
def held(
    client: MetastoreClient,
    components: Sequence[types.LockComponent],
    policy: PollPolicy,
    message: str,
    *,
    tables: Sequence[str],
    remedy: str,
) -> Iterator[Callable[[], None]]:
    """Hold locks outside of a transaction during the block, and yield a check that they are still held.

    No heartbeats keep such locks. The metastore drops them ``hive.txn.timeout`` after their last use, also if
    their process is only suspended, and then goes on. The block therefore calls the check right before each
    call that needs the locks. A suspension between that check and the arrival of the call remains: the
    metastore has no call that demands a lock, and the end of the block then reports the loss.

    :param message: the text of the error if the locks are not granted.
    :param tables: the tables that the errors name.
    :raises LockTimeoutError: the locks are not granted within the policy's ``timeout_s``.
    :raises LockLostError: by the check, and at the end of a block that has called it: the metastore may have
        dropped the locks by then.
    """
    hold = _Hold(transaction_timeout_s(client) * SILENCE_SHARE, tables)
    answer = client.lock(components)
    lock_id = answer.lockid or 0
    try:
        if not hold.granted(client, answer, policy):
            raise LockTimeoutError(message, remedy=remedy, tables=[*tables], lock_id=lock_id, txn_id=None)
        yield hold.check
        if hold.was_checked:
            # The answer of unlock does not show that the metastore has dropped the locks before.
            hold.check()
    finally:
        with suppress(NoSuchLockError):
            client.unlock(lock_id)


class _Hold:
    """Locks outside of a transaction, with the time of their last use.

    :param silence_s: seconds after the last use within which the metastore certainly keeps the locks.
    """

    def __init__(self, silence_s: float, tables: Sequence[str]) -> None:
        self._silence_s, self._tables = silence_s, tables
        self._used_s = boot_time_s()
        self.was_checked = False

    def granted(self, client: MetastoreClient, answer: types.LockResponse, policy: PollPolicy) -> bool:
        try:
            # Each look is a heartbeat (``TxnHandler.checkLock``).
            return granted(client, answer, policy, check=self._use)
        except NoSuchLockError as error:
            raise self.lost("the metastore has dropped them before it granted them") from error

    def _use(self) -> None:
        self._used_s = boot_time_s()

    def check(self) -> None:
        self.was_checked = True
        age_s = boot_time_s() - self._used_s
        if age_s > self._silence_s:
            raise self.lost(f"they are {age_s:.0f} s old, and the metastore may have dropped them")

    def lost(self, reason: str) -> LockLostError:
        return LockLostError(
            f"Locks on {', '.join(self._tables)} are lost: {reason}.",
            remedy="Run this again. Other processes may have changed the table meanwhile.",
            tables=[*self._tables],
        )


def granted(
    client: MetastoreClient,
    answer: types.LockResponse,
    policy: PollPolicy,
    *,
    txn_id: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> bool:
    """Wait until requested locks are granted, and return whether they were before the policy's timeout.

    :param answer: the metastore's answer to the request.
    :param check: is called before each look; it raises if the locks are of no more use.
    :raises NoSuchLockError: the locks have timed out.
    """

    def is_granted() -> bool:
        check()
        return client.check_lock(answer.lockid or 0, txn_id=txn_id).state == types.LockState.ACQUIRED

    return answer.state == types.LockState.ACQUIRED or wait_until(is_granted, policy)

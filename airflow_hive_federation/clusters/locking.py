"""Takes metastore locks around changes of cluster metadata, copies, and changes of the primary.

The locks have names that Hive does not allow, so that no other locks conflict with them. Where Hive's own
statements have to wait as well, ordinary Hive locks are taken too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress

from airflow_hive_federation.errors import NoSuchLockError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.transactions.locks import LOCK_DATABASE, held
from airflow_hive_federation.transactions.positions import WAITING, alone_altering, unguarded
from airflow_hive_federation.waiting import PollPolicy


def copies_lock(table: str) -> str:
    """Return the name of the lock that makers of a table's copies share, and that removers hold exclusively.

    :param table: ``database.table``.
    """
    return f"{LOCK_DATABASE}.copies of {table.lower()}"


def exclusive(
    name: str, *, partition: str | None = None, others_may_read: bool = False
) -> types.LockComponent:
    """Return the lock component for an exclusive lock.

    :param name: the database and table.
    :param others_may_read: exclude only other writers.
    """
    kind = types.LockType.EXCL_WRITE if others_may_read else types.LockType.EXCLUSIVE
    return _component(kind, name, partition)


def _component(kind: types.LockType, name: str, partition: str | None) -> types.LockComponent:
    database, _, table = name.partition(".")
    return types.LockComponent(
        type=kind,
        level=types.LockLevel.TABLE if partition is None else types.LockLevel.PARTITION,
        dbname=database,
        tablename=table,
        partitionname=partition,
        operationType=types.DataOperationType.NO_TXN,
        isTransactional=False,
    )


@contextmanager
def altering(
    client: MetastoreClient,
    table: str,
    partitions: Sequence[str] = (),
    *,
    beside_inserts: bool = False,
    policy: PollPolicy = WAITING,
) -> Iterator[Callable[[], None]]:
    """Exclude other changes of a table's metadata by this package during the block; yield a check of that.

    Hive statements that write the partitions are excluded as well: they wait, or this function waits for
    them. The lock of a killed or suspended process expires after the metastore's ``hive.txn.timeout``: call
    the check right before each alteration.

    :param table: ``database.table``.
    :param partitions: the names of the partitions that will be altered.
    :param beside_inserts: exclude only statements that exclude readers: those that move, rename, overwrite or
        drop the partitions.
    :raises LockTimeoutError: the lock is not granted within the policy's ``timeout_s``.
    :raises LockLostError: as :func:`~airflow_hive_federation.transactions.locks.held`.
    """
    database, _, name = table.partition(".")
    kind = types.LockType.SHARED_READ if beside_inserts else types.LockType.EXCL_WRITE
    # A writer of ours waits for the other lock while it holds the locks of its transaction.
    with (
        held(
            client,
            [_component(kind, table.lower(), partition) for partition in partitions],
            policy,
            f"Other processes have held locks on {table} for {policy.timeout_s} s.",
            remedy="List the holders by SHOW LOCKS; a killed process's lock ends by hive.txn.timeout.",
            tables=[table],
        )
        if partitions
        else nullcontext(unguarded) as check_partitions,
        alone_altering(client, database, name, policy=policy) as check_alone,
    ):

        def check() -> None:
            check_partitions()
            check_alone()

        yield check


def waiting_writers(client: MetastoreClient, table: str) -> list[str]:
    """Return the locks for which statements wait that write a table, as texts for messages.

    :param table: ``database.table``.
    """
    database, _, name = table.partition(".")
    locks = client.show_locks(database=database, table=name)
    waiting = [
        lock
        for lock in locks
        if lock.state == types.LockState.WAITING and lock.type != types.LockType.SHARED_READ
    ]
    return sorted({f"lock {lock.lockid} of {lock.user}@{lock.hostname}" for lock in waiting})


@contextmanager
def alone_with_copies(client: MetastoreClient, table: str) -> Iterator[Callable[[], None] | None]:
    """Prevent new copies of a table during the block; yield ``None`` if copies are being made already.

    :param table: ``database.table``.
    :return: a function that proves and renews the lock, which expires after the metastore's
        ``hive.txn.timeout``; it raises :class:`NoSuchLockError` if the lock has expired.
    """
    answer = client.lock([exclusive(copies_lock(table))])
    lock_id = answer.lockid or 0

    def renew() -> None:
        client.check_lock(lock_id)

    try:
        yield renew if answer.state == types.LockState.ACQUIRED else None
    finally:
        with suppress(NoSuchLockError):
            client.unlock(lock_id)

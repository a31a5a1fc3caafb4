"""Locks of the metastore around changes of cluster metadata, copies, and changes of the primary.

They are named after a database that Hive allows no name like, so that nobody else's locks meet them. Those of
Hive itself are taken beside them where Hive's own statements have to wait, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from airflow_hive_federation.errors import LockTimeoutError, NoSuchLockError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.waiting import PollPolicy, wait_until

LOCK_DATABASE = "hive-federation"
#: Changes of metadata take some calls of the metastore, and at most a few seconds.
ALTERING = PollPolicy(first_s=0.05, longest_s=1.0, timeout_s=60.0)


def copies_lock(table: str) -> str:
    """The name of the lock that copies of a table share, and that those hold alone who remove some.

    :param table: ``database.table``.
    """
    return f"{LOCK_DATABASE}.copies of {table.lower()}"


def exclusive(
    name: str, *, partition: str | None = None, others_may_read: bool = False
) -> types.LockComponent:
    """What to ask the metastore for.

    :param name: database and table.
    :param others_may_read: keep only other writers out.
    """
    database, _, table = name.partition(".")
    return types.LockComponent(
        type=types.LockType.EXCL_WRITE if others_may_read else types.LockType.EXCLUSIVE,
        level=types.LockLevel.TABLE if partition is None else types.LockLevel.PARTITION,
        dbname=database,
        tablename=table,
        partitionname=partition,
        operationType=types.DataOperationType.NO_TXN,
        isTransactional=False,
    )


@contextmanager
def altering(
    client: MetastoreClient, table: str, partitions: Sequence[str] = (), *, policy: PollPolicy = ALTERING
) -> Iterator[None]:
    """Keep everybody else from changing the cluster metadata of a table while the block runs.

    Statements of Hive's that write the partitions wait, too, or are waited for. A lock that a killed process
    has left ends by the metastore's ``hive.txn.timeout``.

    :param table: ``database.table``.
    :param partitions: names of partitions that are going to be altered.
    :raises LockTimeoutError: it is not granted within the policy's ``timeout_s``.
    """
    components = [exclusive(f"{LOCK_DATABASE}.{table.lower()}")]
    components += [exclusive(table.lower(), partition=one, others_may_read=True) for one in partitions]
    answer = client.lock(components)
    lock_id = answer.lockid or 0
    try:
        if answer.state != types.LockState.ACQUIRED and not wait_until(
            lambda: client.check_lock(lock_id).state == types.LockState.ACQUIRED, policy
        ):
            raise LockTimeoutError(
                f"Others have locked {table} for {policy.timeout_s} s.",
                remedy="SHOW LOCKS tells who; a lock whose process was killed ends by hive.txn.timeout.",
                tables=[table],
                lock_id=lock_id,
                txn_id=None,
            )
        yield
    finally:
        with suppress(NoSuchLockError):
            client.unlock(lock_id)


@contextmanager
def alone_with_copies(client: MetastoreClient, table: str) -> Iterator[bool]:
    """Keep everybody from making copies of a table while the block runs; yield ``False`` if some are made.

    :param table: ``database.table``.
    """
    answer = client.lock([exclusive(copies_lock(table))])
    try:
        yield answer.state == types.LockState.ACQUIRED
    finally:
        with suppress(NoSuchLockError):
            client.unlock(answer.lockid or 0)

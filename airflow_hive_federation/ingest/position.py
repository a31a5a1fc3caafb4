"""Positions of inputs, kept with the table and moved by the commit of the records themselves.

The metastore sets one parameter of the written table in the same database transaction that commits
(``CommitTxnKeyValue``). Its key has to begin with ``_meta``, and has to exist (Hive 4.2.1 only updates it).

Two processes that go on from one position would write the same records. So a transaction that is going to
move a position holds a lock of its own (:func:`fence`), looks at the position again when it has it, and who
comes later aborts what an earlier process has left open (:func:`take_over`).
"""

from __future__ import annotations

import logging
from typing import Any

from airflow_hive_federation.errors import ConfigurationError, NoSuchLockError
from airflow_hive_federation.ingest.errors import TransactionError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.transactions.transaction import LOCK_POLICY
from airflow_hive_federation.waiting import PollPolicy, wait_until

log = logging.getLogger(__name__)

PREFIX = "_meta"
"""Keys begin so (``TxnStore.TXN_KEY_START``)."""
NOTHING_YET = ""
"""The value of a position that was never committed."""


def check_key(key: str) -> str:
    """Return the key.

    :raises ConfigurationError: the metastore would refuse it.
    """
    if not key.startswith(PREFIX):
        raise ConfigurationError(
            f"A commit cannot set the parameter {key!r}.", remedy=f"Begin its name with {PREFIX}."
        )
    return key


def committed_position(client: MetastoreClient, database: str, table: str, key: str) -> str | None:
    """Read a position back; ``None`` if none was ever committed."""
    described = client.get_table(database, table)
    return (described.parameters or {}).get(check_key(key)) or None


def fence(database: str, table: str, key: str) -> types.LockComponent:
    """Describe the lock that a transaction holds which is going to move a position.

    It is the lock of a table that does not exist, so that it concerns nobody but who moves this position.
    """
    return types.LockComponent(
        type=types.LockType.EXCLUSIVE,
        level=types.LockLevel.TABLE,
        dbname=database,
        tablename=_fence_name(table, key),
        operationType=types.DataOperationType.NO_TXN,
        isTransactional=False,
    )


def take_over(client: MetastoreClient, database: str, table: str, key: str) -> list[int]:
    """Abort the transactions that are going to move a position, and return them.

    They are of a process that was killed, or that is believed to be: it can commit nothing any more.
    """
    locks = client.show_locks(database=database, table=_fence_name(table, key))
    holders = sorted({one.txnid for one in locks if one.txnid})
    if holders:
        log.warning("%s.%s: %s is taken over from transactions %s", database, table, key, holders)
        client.abort_txns(holders)
    return holders


def _fence_name(table: str, key: str) -> str:
    return f"{table}:{key}".lower()


def ensure_position(
    client: MetastoreClient, database: str, table: str, key: str, *, lock_policy: PollPolicy = LOCK_POLICY
) -> None:
    """Make sure that a table has the parameter, so that commits can set it.

    Replacing a table's parameters would set back the positions that others commit meanwhile, so this is done
    once, under an exclusive lock, which waits for the transactions that write to the table.

    :raises TransactionError: the lock is not granted within the policy's ``timeout_s``.
    """
    described: Any = client.get_table(database, table)
    if check_key(key) in (described.parameters or {}):
        return
    component = types.LockComponent(
        type=types.LockType.EXCLUSIVE,
        level=types.LockLevel.TABLE,
        dbname=database,
        tablename=table,
        operationType=types.DataOperationType.NO_TXN,
        isTransactional=True,
    )
    lock = client.lock([component])
    lock_id = lock.lockid or 0
    try:
        if lock.state != types.LockState.ACQUIRED and not wait_until(
            lambda: client.check_lock(lock_id).state == types.LockState.ACQUIRED, lock_policy
        ):
            raise TransactionError(
                f"{database}.{table}: no lock within {lock_policy.timeout_s} s to make {key!r}.",
                remedy="Let the transactions that write to the table end, once, before this stream's first.",
            )
        described = client.get_table(database, table)
        if key not in (described.parameters or {}):
            described.parameters = {**(described.parameters or {}), key: NOTHING_YET}
            client.alter_table(database, table, described, environment={"DO_NOT_UPDATE_STATS": "true"})
    finally:
        _unlock(client, lock_id)


def _unlock(client: MetastoreClient, lock_id: int) -> None:
    try:
        client.unlock(lock_id)
    except NoSuchLockError:
        return

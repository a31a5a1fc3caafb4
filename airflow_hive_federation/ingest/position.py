"""Keeps the position of an input in a table parameter, which the commit of the records moves.

The metastore sets one parameter of the written table in the database transaction of the commit
(``CommitTxnKeyValue``). Its key has to begin with ``_meta``, and has to exist (Hive 4.2.1 only updates it).
Hive 3.1 ignores it, commits the records, and keeps no position.

Two processes that continue from one position would write the same records. So a transaction that is going to
move a position takes a lock of its own (its fence) and then reads the position again. A later process
aborts the transactions that an earlier process has left open (:func:`take_over`).
"""

from __future__ import annotations

import logging

from airflow_hive_federation.errors import ConfigurationError, UnsupportedMethodError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.transactions.locks import excluding_components, held
from airflow_hive_federation.transactions.positions import (
    PREFIX,
    alter_beside_streams,
    fence_name,
    positions,
)
from airflow_hive_federation.transactions.transaction import LOCK_POLICY
from airflow_hive_federation.transactions.write_id_counts import max_allocated_write_id
from airflow_hive_federation.waiting import PollPolicy

log = logging.getLogger(__name__)

NOTHING_YET = ""
"""Stands for a position that was never committed."""


def check_key(key: str) -> str:
    """Check a key and return it.

    :raises ConfigurationError: the metastore would refuse the key.
    """
    if not key.startswith(PREFIX):
        raise ConfigurationError(
            f"A commit cannot set the parameter {key!r}.", remedy=f"Begin its name with {PREFIX}."
        )
    return key


def check_keeps_positions(client: MetastoreClient, database: str, table: str) -> None:
    """Refuse a metastore whose commits set no parameter, so that the same records would be written again.

    ``CommitTxnRequest`` has the field since Hive 4, and Thrift ignores unknown fields without an error. So
    another call of Hive 4 shows the version.

    :raises ConfigurationError: the metastore is older.
    """
    try:
        max_allocated_write_id(client, database, table)
    except UnsupportedMethodError as error:
        raise ConfigurationError(
            f"The metastore of {database}.{table} keeps no position with a commit, as Hive 4 does: "
            f"{error.message}",
            remedy="Use a metastore of Hive 4, or ingest without a position, by the streaming API.",
        ) from error


def committed_position(client: MetastoreClient, database: str, table: str, key: str) -> str | None:
    """Return the committed position; ``None`` if none was ever committed."""
    described = client.get_table(database, table)
    return (described.parameters or {}).get(check_key(key)) or None


def movers(client: MetastoreClient, database: str, table: str, key: str) -> list[int]:
    """Return the ids of the transactions that hold the fence of a position, or wait for it."""
    locks = client.show_locks(database=database, table=fence_name(table, key))
    return sorted({lock.txnid for lock in locks if lock.txnid})


def take_over(client: MetastoreClient, database: str, table: str, key: str) -> list[int]:
    """Abort the transactions that are going to move a position, and return their ids.

    They belong to a process that was killed, or that seems to have been killed: it cannot commit any more.
    """
    holders = movers(client, database, table, key)
    if holders:
        log.warning("%s.%s: %s is taken over from transactions %s", database, table, key, holders)
        client.abort_txns(holders)
    return holders


def ensure_position(
    client: MetastoreClient, database: str, table: str, key: str, *, lock_policy: PollPolicy = LOCK_POLICY
) -> None:
    """Create the parameter of a table if it does not exist, so that commits can set it.

    Replacing a table's parameters would set back the positions that other processes commit meanwhile. So the
    parameter is created once, under an exclusive lock, which waits for the transactions that write to the
    table. The metastore compares one of the present positions, too.

    :raises ConfigurationError: the metastore is older than Hive 4, and keeps no position.
    :raises LockTimeoutError: the lock is not granted within the policy's ``timeout_s``, or another process
        changes the table's cluster metadata for too long.
    :raises LockLostError: this process was suspended, and others may have altered the table.
    :raises MetastoreServerError: the metastore refuses the parameter.
    """
    described = client.get_table(database, table)
    check_keeps_positions(client, database, table)
    if check_key(key) in (described.parameters or {}):
        return
    name = f"{database}.{table}"

    def added(now: types.Table) -> types.Table | None:
        if key in (now.parameters or {}):
            return None
        now.parameters = {**(now.parameters or {}), key: NOTHING_YET}
        return now

    with held(
        client,
        excluding_components([name]),
        lock_policy,
        f"{name}: no lock within {lock_policy.timeout_s} s to make {key!r}.",
        tables=[name],
        remedy="Let the transactions that write to the table end, once, before this stream's first.",
    ) as check_alone:
        alter_beside_streams(
            client,
            database,
            table,
            added,
            # Who moves one of them needs the table's lock, and waits for it with the fence.
            own=positions(described),
            check=check_alone,
            environment={"DO_NOT_UPDATE_STATS": "true"},
        )

"""Lets one process at a time write a link, by a lock in the local metastore.

A refresh applies the state of the remote that it has read. If it was suspended meanwhile, that state is old:
it would set a link back behind the position of a later refresh, and no event would name the table again. A
link that is dropped beside a refresh would lose some of its tables, or get them back.

The holder of the lock (:mod:`~airflow_hive_federation.transactions.lasting_locks`) checks the age of its last
confirmed heartbeat right before each call that writes. So one gap remains: a holder that is suspended between
that check and the sending of the call.
"""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import sleep

from airflow_hive_federation.catalog.hive import HiveCatalog
from airflow_hive_federation.errors import (
    LockLostError,
    LockTimeoutError,
    MetastoreError,
    MetastoreServerError,
    NoSuchLockError,
)
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.remotes.statement import Kind, Name
from airflow_hive_federation.transactions.heartbeat import Heartbeat, transaction_timeout_s
from airflow_hive_federation.transactions.lasting_locks import SILENCE_S, LastingLock, heartbeat_of
from airflow_hive_federation.transactions.locks import LOCK_DATABASE
from airflow_hive_federation.waiting import PollPolicy, boot_time_s

log = logging.getLogger(__name__)

#: Limits the characters of the lock's name: the columns of some metastores' databases hold 128.
_LONGEST_NAME = 120
#: A metastore counts as one without locks if it cannot list transactions so many times in a row.
_PROBES = 3
#: The text by which Thrift replaces that of an exception which a call does not declare.
_UNDECLARED = "Internal error processing"
#: Another refresh may take long, if it makes a large link.
_WAITING = PollPolicy(first_s=0.2, longest_s=1.0, timeout_s=600.0)


@contextmanager
def alone(local: HiveCatalog, kind: Kind, name: Name) -> Iterator[HiveCatalog]:
    """Exclude other writers of a link during the block, and yield the metastore whose calls check that.

    A metastore whose database has no tables of locks, such as that of Hive 2.3 in Spark, excludes nobody.

    :param local: the local metastore.
    :param name: the local name of a remote database, or of a remote table that is not a member of one.
    :raises LockTimeoutError: another process holds the lock, and lives.
    :raises LockLostError: by each call that writes, and at the end of the block, if no heartbeat was
        confirmed for too long, or another process has taken the lock.
    """
    label = f"{kind} {name}"
    with local.client() as client:
        taken = _taken(client, label)
        if taken is not None:
            timeout_s = transaction_timeout_s(client)
    if taken is None:
        log.warning(
            "The local metastore keeps no locks: nothing else may refresh %s at the same time.", label
        )
        yield local
        return
    lock_id, asked_s = taken

    heart = heartbeat_of(
        client.settings,
        lock_id,
        name=f"the lock of {label}",
        since_s=asked_s,
        timeout_s=timeout_s,
        clock=boot_time_s,
    )
    try:
        with heart:
            yield local.guarded(lambda _: _refuse_loss(heart, label))
            _refuse_loss(heart, label)
    finally:
        _release(local, label, lock_id)


def _refuse_loss(heart: Heartbeat, label: str) -> None:
    if (loss := heart.loss) is not None:
        raise LockLostError(
            f"The lock of remote {label} is lost: {loss.description}.",
            remedy="Run this again. Another process may have refreshed the remote meanwhile.",
            tables=[label],
        ) from loss.cause


def _release(local: HiveCatalog, label: str, lock_id: int) -> None:
    try:
        with local.client() as client, suppress(NoSuchLockError):
            client.unlock(lock_id)
    except MetastoreError as error:
        # The error of the block matters more, and a lock without heartbeats is taken over.
        log.warning("The lock of remote %s was not released: %s", label, error)


def _taken(client: MetastoreClient, label: str) -> tuple[int, float] | None:
    """Take the lock; return its id, and the time before it was requested.

    :return: ``None`` if the metastore keeps no locks.
    """
    lock = LastingLock(database=LOCK_DATABASE, name=_table_name(label))
    bury = _gravedigger(client, lock)
    for pause_s in _WAITING.pauses(boot_time_s):
        asked_s = boot_time_s()
        try:
            lock_id = lock.take(client)
        except MetastoreServerError:
            if not _keeps_no_locks(client):
                raise
            return None
        if lock_id is not None:
            return lock_id, asked_s
        if not bury():
            # A random pause keeps two requests out of step that have met each other.
            sleep(pause_s * random.SystemRandom().uniform(0.5, 1.0))
    raise LockTimeoutError(
        f"Another process has been working on remote {label} for {_WAITING.timeout_s} s.",
        remedy="Run this again when it has ended. SHOW LOCKS lists the holder.",
        tables=[label],
        lock_id=0,
        txn_id=None,
    )


def _keeps_no_locks(client: MetastoreClient) -> bool:
    """Return whether the metastore's database has no tables of transactions, after a lock was not granted.

    Such a metastore cannot even list transactions, while it knows its databases. If its database is away for
    a moment, it knows neither. The text of its answer does not tell the two apart: none of the calls declares
    an exception, so that Thrift replaces the text. A gateway permits the calls also to users whom it refuses
    the lock, and answers with its own text if it does not reach the metastore of the transactions.

    :raises MetastoreError: the metastore does not answer.
    """
    for _ in range(_PROBES):
        client.list_databases("default")
        try:
            client.get_open_txns()
        except MetastoreServerError as error:
            if not str(error.facts.get("server_message", "")).startswith(_UNDECLARED):
                return False
        else:
            return False
    client.list_databases("default")
    return True


def _gravedigger(client: MetastoreClient, wanted: LastingLock) -> Callable[[], bool]:
    """Return a function that removes the lock of a dead process, and returns whether it has done so."""
    seen: tuple[int | None, int | None] | None = None
    since_s = 0.0

    def bury() -> bool:
        nonlocal seen, since_s
        found_s = boot_time_s()
        lock = wanted.in_the_way(client)
        if lock is None or seen != (lock.lockid, lock.lastheartbeat):
            if lock is not None and (seen is None or seen[0] != lock.lockid):
                log.info("Waiting for lock %s of %s on %s.", lock.lockid, lock.user, lock.hostname)
            seen, since_s = (lock.lockid, lock.lastheartbeat) if lock else None, boot_time_s()
            return False
        if found_s - since_s < SILENCE_S:
            return False
        log.warning("Lock %s of %s on %s is removed: no heartbeat.", lock.lockid, lock.user, lock.hostname)
        with suppress(NoSuchLockError):
            client.unlock(lock.lockid or 0)
        return True

    return bury


def _table_name(label: str) -> str:
    name = f"remote {label}".lower()
    if len(name) <= _LONGEST_NAME:
        return name
    return f"remote {hashlib.sha256(name.encode()).hexdigest()}"

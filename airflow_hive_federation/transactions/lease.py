"""Keeps the source's cleaner from removing files that are to be copied, by a read transaction: a lease.

Hive's cleaner does not remove files that a compaction has replaced while a transaction is open that began
before the end of the compaction and has registered its reads, by locks where the cleaner waits for these
(``MetastoreClient.keep_history``). A dump opens such a transaction and stores its id, and the load keeps it
alive until the files are copied. Without a load,
the metastore aborts it after ``hive.txn.timeout``; a file that is gone by then makes the copy fail, and never
loses rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from airflow_hive_federation.errors import (
    HiveFederationError,
    MetastoreError,
    ReadTransactionLostError,
    TransactionError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.transactions.heartbeat import Heartbeat, Loss
from airflow_hive_federation.transactions.keeping import KeptFiles
from airflow_hive_federation.waiting import Departure

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool

logger = logging.getLogger(__name__)

_HEARTBEAT_S = 60.0
#: Seconds of silence after which the lease counts as lost: less than the default of ``hive.txn.timeout``.
_SILENCE_S = 270.0


def open_lease(pool: MetastorePool, *, policy: str) -> int:
    """Open a read-only transaction, which leaves no notification event; return its id."""
    with pool.client() as client:
        (txn_id,) = client.open_txns(1, agent_info=f"hive-federation {policy}", kind=types.TxnType.READ_ONLY)
    return int(txn_id)


def end_lease(pool: MetastorePool, txn_id: int) -> None:
    """Commit the read-only transaction; log it if the transaction has timed out before."""
    with pool.client() as client:
        try:
            client.commit_txn(txn_id)
        except TransactionError as error:
            logger.info("Read transaction %d had ended before: %s", txn_id, error)


@contextmanager
def lease_of_a_dump(pool: MetastorePool, *, policy: str, given: int | None = None) -> Iterator[LeaseKeeper]:
    """Yield a lease, kept alive while a dump is written; it stays open for the load unless the dump fails.

    :param given: a lease that several dumps share; it stays open even if this dump fails.
    """
    if given is not None:
        with LeaseKeeper(pool, given) as keeper:
            yield keeper
        return
    lease = open_lease(pool, policy=policy)
    try:
        with LeaseKeeper(pool, lease) as keeper:
            yield keeper
    except HiveFederationError:
        # The next run opens a new lease. If the source has failed, this lease ends by its timeout.
        with suppress(MetastoreError):
            end_lease(pool, lease)
        raise


@contextmanager
def files_kept(pool: MetastorePool, database: str, tables: Sequence[str], *, policy: str) -> Iterator[None]:
    """Keep a metastore's cleaner from removing files of tables while the block runs.

    After a :class:`~airflow_hive_federation.waiting.Departure`, the process that returns ends the lease.

    :param pool: connections to the metastore.
    :param tables: names of its transactional tables.
    """
    lease = open_lease(pool, policy=policy)
    departed = False
    try:
        with LeaseKeeper(pool, lease):
            with pool.client() as client:
                existing = set(client.list_tables(database))
                names = [f"{database}.{name}" for name in tables if name in existing]
                KeptFiles(client, lease).take(lambda: names, lambda: None)
            yield
    except Departure as left:
        departed = True
        left.borrowed.append((pool.settings.uris, lease))
        raise
    finally:
        if not departed:
            with suppress(MetastoreError):
                end_lease(pool, lease)


def keep_lease(client: MetastoreClient, txn_id: int) -> None:
    """Send one heartbeat for a lease.

    :raises ReadTransactionLostError: the metastore has ended the read transaction.
    """
    answer = client.heartbeat_txn_range(txn_id, txn_id)
    if txn_id in {*(answer.aborted or ()), *(answer.nosuch or ())}:
        raise ReadTransactionLostError(
            f"The metastore has ended read transaction {txn_id}.",
            remedy="Run it again. If this happens each time, raise hive.txn.timeout of that metastore, or "
            "look for a process that was suspended.",
            txn_id=txn_id,
        )


class LeaseKeeper:
    """Sends heartbeats for a lease while the block runs, over a connection of its own.

    :param pool: connections to the source.
    :param txn_id: id of the lease's transaction.
    """

    def __init__(self, pool: MetastorePool, txn_id: int) -> None:
        self.txn_id = txn_id
        self._uris = pool.settings.uris
        self._heart = Heartbeat(
            pool.settings,
            self._beat,
            name=f"read transaction {txn_id}",
            interval_s=_HEARTBEAT_S,
            silence_s=_SILENCE_S,
            on_loss=self._warn,
        )

    def __enter__(self) -> Self:
        self._heart.start(at_once=True)  # the dump may have ended minutes ago
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._heart.stop()
        if isinstance(error, Departure):
            error.leases.append((self._uris, self.txn_id))

    def check(self) -> None:
        """Have the source confirm that the lease is still open, and has kept all files until now.

        :raises ReadTransactionLostError: if the read transaction has ended.
        """
        if (loss := self._heart.prove()) is not None:
            raise ReadTransactionLostError(
                f"Read transaction {self.txn_id} on the source is lost: {loss.description}. Files may have "
                "been removed while they were listed.",
                remedy="Run it again: the listing is not used.",
                txn_id=self.txn_id,
            ) from loss.cause

    def _beat(self, client: MetastoreClient) -> None:
        keep_lease(client, self.txn_id)

    def _warn(self, loss: Loss) -> None:
        logger.warning(
            "Read transaction %d on the source is lost: its cleaner may remove files before they are copied, "
            "in which case the copy fails and the dump must be repeated. %s",
            self.txn_id,
            loss.description,
        )

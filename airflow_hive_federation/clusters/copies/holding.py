"""Keeps the copies of a table, and the files of a transactional one, while a copy is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from airflow_hive_federation.clusters.altering import full_name
from airflow_hive_federation.clusters.locking import copies_lock
from airflow_hive_federation.errors import ReadTransactionLostError, TransactionAbortedError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.transactions.snapshots import Snapshot, is_transactional
from airflow_hive_federation.transactions.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class Held:
    """A transaction that prevents the removal of a table's copies, and the cleaning of a transactional table.

    :param snapshot: the snapshot of a transactional table, whose files the transaction preserves; ``None``
        for others.
    """

    transaction: Transaction
    snapshot: Snapshot | None

    def prove(self, client: MetastoreClient) -> None:
        """Let the metastore confirm that the transaction is open.

        :raises ReadTransactionLostError: the transaction was aborted, so files may have been removed.
        """
        txn_id = self.transaction.id
        try:
            self.transaction.check()
        except TransactionAbortedError as error:
            raise self._lost(error.message) from error
        answer = client.heartbeat_txn_range(txn_id, txn_id)
        if txn_id in {*(answer.aborted or ()), *(answer.nosuch or ())}:
            raise self._lost(f"Transaction {txn_id} was aborted.")

    def _lost(self, reason: str) -> ReadTransactionLostError:
        return ReadTransactionLostError(
            f"A copy may lack files, which its transaction has not kept: {reason}",
            remedy="Run the copy again.",
            txn_id=self.transaction.id,
        )


@contextmanager
def holding(client: MetastoreClient, table: types.Table) -> Iterator[Held]:
    """Open a reader's transaction on a table and its copies for the block."""
    name = full_name(table).lower()
    with Transaction(client, read_only=True) as transaction:
        if is_transactional(table):
            transaction.lock_to_read([copies_lock(name), name])
            yield Held(transaction=transaction, snapshot=transaction.snapshot(*name.split(".", 1)))
        else:
            transaction.lock_to_read([copies_lock(name)])
            yield Held(transaction=transaction, snapshot=None)

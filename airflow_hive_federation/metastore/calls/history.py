"""Keeps Hive's cleaner from removing files that a transaction is going to read.

The cleaners of Hive's versions wait for different things. This module asks the metastore which calls it has,
and never for its version: distributions combine the versions.

=============================================  ==========================================================
the metastore has                              its cleaner waits for
=============================================  ==========================================================
``add_write_ids_to_min_history``               write ids that transactions have registered to read, or open
                                               transactions (``metastore.txn.use.minhistorywriteid``)
``get_latest_committed_compaction_info`` only  open transactions
neither (Hive 3.1)                             locks on the table or on the partition of exactly that name
                                               (``Cleaner.findRelatedLocks``)
=============================================  ==========================================================
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from airflow_hive_federation.errors import UnsupportedMethodError
from airflow_hive_federation.metastore.calls.base import batches
from airflow_hive_federation.metastore.calls.partitions import PartitionCalls
from airflow_hive_federation.metastore.calls.transactions import TransactionCalls
from airflow_hive_federation.metastore.idl import types

#: Locks per request: Hive 3.1 compares each lock of a request with all others of its partitions.
LOCKS_PER_CALL = 1000


class HistoryCalls(PartitionCalls, TransactionCalls):
    """Calls that keep files of tables until a transaction ends."""

    def keep_history(
        self, txn_id: int, full_table_names: Sequence[str], *, locked: frozenset[str] = frozenset()
    ) -> frozenset[str] | None:
        """Keep Hive's cleaner from removing files of tables (``db.table``) until a transaction ends.

        Call it before reading the snapshot. By default, the cleaner of Hive 4.2 waits for the write ids that
        transactions have registered to read, not for open transactions (``ReadyToCleanHandler``). With that
        setting off, it waits for the transactions that are open when a compaction commits, but not for
        the newest of them: the commit stores the highest id (``CommitTxnFunction``), and the cleaner starts
        when no *lower* id is open. So this method opens and commits a newer transaction.

        The cleaner of Hive 3.1 waits for locks only. Where the metastore shows no sign of a later cleaner,
        the method also requests readers' locks on the transactional tables and all their partitions. It does
        not wait until they are granted: the cleaner waits for requests, too. A partition that is added after
        this call is not locked (see :class:`~airflow_hive_federation.transactions.keeping.KeptFiles`).

        :param locked: the answer of an earlier call for the transaction, whose locks are not requested again.
        :return: names of the tables (``db.table``) and partitions (``db.table/day=1``) that are locked,
            ``locked`` included; ``None`` if the cleaner waits for no locks.
        """
        if not full_table_names:
            return locked
        by_locks: list[str] = []
        try:
            self.call("add_write_ids_to_min_history", txn_id, dict.fromkeys(full_table_names, 1))
        except UnsupportedMethodError:
            databases = {name.partition(".")[0] for name in full_table_names}
            waiting = {database for database in databases if self.waits_for_locks(database)}
            by_locks = [name for name in full_table_names if name.partition(".")[0] in waiting]
        if not locked:
            # A metastore of mixed versions may wait for locks, or for transactions: this serves both.
            (newer,) = self.open_txns(kind=types.TxnType.READ_ONLY)
            self.commit_txn(newer, kind=types.TxnType.READ_ONLY)
        return self._lock_to_keep(txn_id, by_locks, locked) if by_locks else None

    def waits_for_locks(self, database: str) -> bool:
        """Return whether a database's metastore shows no sign of a cleaner that waits for transactions.

        :param database: any database of the metastore; behind a gateway, each may have another metastore.
        """
        request = types.GetLatestCommittedCompactionInfoRequest(dbname=database, tablename="")
        try:
            self.call("get_latest_committed_compaction_info", request)
        except UnsupportedMethodError:
            return True
        return False

    def _lock_to_keep(self, txn_id: int, names: Iterable[str], locked: frozenset[str]) -> frozenset[str]:
        lacking = {name: component for name, component in self._reads(names) if name not in locked}
        for batch in batches(lacking.values(), LOCKS_PER_CALL):
            self.lock(batch, txn_id=txn_id)
        return locked | lacking.keys()

    def _reads(self, names: Iterable[str]) -> Iterator[tuple[str, types.LockComponent]]:
        """Yield the locks of readers of the transactional ones among tables, with their partitions."""
        by_database: defaultdict[str, list[str]] = defaultdict(list)
        for name in names:
            database, _, table = name.partition(".")
            by_database[database].append(table)
        for database, tables in by_database.items():
            for described in self.get_tables(database, tables):
                if str((described.parameters or {}).get("transactional", "")).lower() != "true":
                    continue
                table = str(described.tableName)
                yield f"{database}.{table}", _read(database, table)
                for partition in (
                    self.list_partition_names(database, table) if described.partitionKeys else ()
                ):
                    yield f"{database}.{table}/{partition}", _read(database, table, partition)


def _read(database: str, table: str, partition: str | None = None) -> types.LockComponent:
    return types.LockComponent(
        type=types.LockType.SHARED_READ,
        level=types.LockLevel.TABLE if partition is None else types.LockLevel.PARTITION,
        dbname=database,
        tablename=table,
        partitionname=partition,
        operationType=types.DataOperationType.SELECT,
        isTransactional=True,
    )

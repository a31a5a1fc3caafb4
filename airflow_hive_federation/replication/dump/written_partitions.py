"""Finds the partitions whose files a cycle's transactions have changed.

Hive's writers record the partitions that they write to, per transaction (``hive.metastore.dml.events``,
``TXN_WRITE_NOTIFICATION_LOG``), and Hive's own replication copies by these records alone. A transaction
without any record may have been made by a writer that keeps none, or may have written to new partitions only,
which events name. In that case, the directories of all partitions are listed, and compared with the dump
before.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import UnsupportedMethodError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.replication.dump.contents import visible_files
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.metadata.table_locations import TableLocations

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient

logger = logging.getLogger(__name__)


class WriteRecords:
    """Reads a source's records of writes, each transaction's once.

    :param database: the source database.
    :param target_table: translates the source's name of a table into the target's.
    """

    def __init__(self, database: str, target_table: Callable[[str], str]) -> None:
        self._database = database
        self._target_table = target_table
        self._records: dict[int, Mapping[str, frozenset[str]]] = {}

    def partitions(self, client: MetastoreClient, table: str, txns: Sequence[int]) -> set[str] | None:
        """Return the partitions of a table to which transactions wrote.

        :param client: client of the source.
        :param txns: transactions that have a write id of the table and were committed.
        :return: ``None`` if one of them left no record, or one that names no partition.
        """
        written: set[str] = set()
        for txn in txns:
            names = self._of(client, txn).get(table, frozenset())
            if not names or "" in names:
                return None
            written |= names
        return written

    def _of(self, client: MetastoreClient, txn: int) -> Mapping[str, frozenset[str]]:
        if txn not in self._records:
            request = types.GetAllWriteEventInfoRequest(txnId=txn, dbName=self._database)
            by_table: defaultdict[str, set[str]] = defaultdict(set)
            try:
                records = client.call("get_all_write_event_info", request) or ()
            except UnsupportedMethodError:
                logger.debug("The metastore has no get_all_write_event_info: directories are listed.")
                records = ()
            for record in records:
                by_table[self._target_table((record.table or "").lower())].add(record.partition or "")
            self._records[txn] = {table: frozenset(names) for table, names in by_table.items()}
        return self._records[txn]


def partitions_with_other_files(
    home: DumpDirectory,
    table: Any,
    write_ids: ValidWriteIds | None,
    transactions: ValidTxns,
    options: Mapping[str, Any] | None = None,
) -> set[str]:
    """List the directories of a table's partitions, and return the partitions with other files than before.

    :param home: the dump that describes the table as the target has it.
    :param table: wire ``Table``.
    :param write_ids: its valid write ids.
    :param transactions: the source's transactions.
    :param options: storage options.
    """
    places = TableLocations(table)
    for line in home.partitions(table.tableName):
        storage = types.StorageDescriptor(location=line.location)
        places.add(types.Partition(values=list(line.values), sd=storage))
    before = _digests(home.files(table.tableName))
    now = _digests(visible_files(table, places, write_ids, transactions, options=options))
    return {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}


def _digests(files: Iterable[VisibleFile]) -> dict[str, int]:
    """Return a digest of each partition's files, which does not depend on their order."""
    digests: defaultdict[str, int] = defaultdict(int)
    for file in files:
        digests[file.partition] += hash((file.uri, file.size_bytes, file.filtered, file.side_file))
    return digests

"""Finds the partitions whose files a cycle's transactions have changed.

Hive's records of writes (``TXN_WRITE_NOTIFICATION_LOG``) do not name them all: of a statement that inserts
into two partitions of one table, Hive 4.2 records one. So the directories of all partitions are listed, and
compared with the dump before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.replication.dump.contents import visible_files
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.metadata.table_locations import TableLocations


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
    places = dumped_places(home, table)
    before = _digests(home.files(table.tableName))
    now = _digests(visible_files(table, places, write_ids, transactions, options=options))
    return {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}


def dumped_places(home: DumpDirectory, table: Any) -> TableLocations:
    """Return the directories of a table's partitions as a dump has them.

    :param table: wire ``Table``.
    """
    places = TableLocations(table)
    for line in home.partitions(table.tableName):
        storage = types.StorageDescriptor(location=line.location)
        places.add(types.Partition(values=list(line.values), sd=storage))
    return places


def _digests(files: Iterable[VisibleFile]) -> dict[str, int]:
    """Return a digest of each partition's files, which does not depend on their order."""
    digests: defaultdict[str, int] = defaultdict(int)
    for file in files:
        digests[file.partition] += hash((file.uri, file.size_bytes, file.filtered, file.side_file))
    return digests

"""Whether an external table has other files than when it was dumped last: they change without events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import from_json
from airflow_hive_federation.model.write_ids import ValidTxns
from airflow_hive_federation.replication.bootstrap import dumped_files
from airflow_hive_federation.replication.contents import visible_files
from airflow_hive_federation.replication.dump_directory import DumpDirectory, table_file


def files_changed(
    home: DumpDirectory, table: str, transactions: ValidTxns, options: Mapping[str, Any] | None = None
) -> bool:
    """List the table's directories and compare names, sizes and modification times.

    :param home: the dump that describes the table; its definition and partitions have not changed since.
    :param table: name of the external table.
    :param transactions: the source's transactions.
    :param options: storage options.
    """
    document = home.read_json(table_file("tables", table, ".json"))
    lines = home.read_lines(table_file("partitions", table, ".jsonl"))
    partitions = [from_json(types.Partition, line["partition"]) for line in lines]
    wire: Any = from_json(types.Table, document["table"])
    now = {
        (file.uri, file.size_bytes, file.modified_ns)
        for file in visible_files(wire, partitions, None, transactions, options=options)
    }
    return now != {(file.uri, file.size_bytes, file.modified_ns) for file in dumped_files(home, table)}

"""Names the tables and partitions of a target's last dump that the target has lost.

A load drops objects whose names stand for others now before it copies the files of these. If it was killed
meanwhile, the target has neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.foreign_writes import names_digest
from airflow_hive_federation.replication.replica.position import loaded_dump
from airflow_hive_federation.replication.replica.table_index import TableIndex

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


def missing_objects(client: MetastoreClient, policy: ReplicationPolicy) -> list[str]:
    """Return the names of tables that a policy's target lacks, and of partitions, as ``table/partition``.

    :param client: client of the target.
    :raises TargetNotOursError: the target database is not this policy's, or not published yet.
    """
    database = policy.target_database
    index = TableIndex(DumpDirectory(loaded_dump(client, policy), policy.storage_options))
    tables: list[types.Table] = list(client.get_tables(database, list(index)))
    there = {str(table.tableName): table for table in tables}
    missing = []
    for name in index:
        if name not in there:
            missing.append(name)
        elif index.entries[name].kind.has_files and there[name].partitionKeys:
            partitions = client.list_partition_names(database, name)
            if names_digest(partitions) != index.entries[name].partition_names:
                known = index.of(name).partition_names(name)
                missing += [f"{name}/{partition}" for partition in sorted({*known}.difference(partitions))]
    return missing

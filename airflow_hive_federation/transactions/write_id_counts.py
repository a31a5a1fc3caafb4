"""Reads the counts of write ids, by a call that metastores of Hive 3.1 and before lack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hive_federation.metastore.idl import types

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


def max_allocated_write_id(client: MetastoreClient, database: str, table: str) -> int:
    """Return the highest write id ever given, including aborted ones that the metastore has forgotten.

    :raises UnsupportedMethodError: the metastore is older than Hive 4.
    """
    request = types.MaxAllocatedTableWriteIdRequest(dbName=database, tableName=table)
    return int(client.call("get_max_allocated_table_write_id", request).maxWriteId)

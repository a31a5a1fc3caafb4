"""Tables of the source that stay out of the replica, each with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.metadata.spark_tables import data_location, provider_of
from airflow_hive_federation.replication.metadata.table_names import reason_to_skip
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.filesystem import open_filesystem, storage_errors

#: Directories in which a table's format keeps the names of its own files, by the format. Spark's streams
#: write absolute ones (``org.apache.spark.sql.execution.streaming.FileStreamSink``).
_LOGS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi", "_spark_metadata": "Spark's streaming file sink"}
_THREADS = 8


def left_out(policy: ReplicationPolicy, tables: Iterable[Any]) -> dict[str, str]:
    """Say of the tables that stay out why they do, by name.

    :param tables: wire ``Table`` objects of the source, with their names on the target.
    :raises StorageError: a table's directory cannot be looked at.
    """
    found = list(tables)
    reasons = {table.tableName: why for table in found if (why := reason_to_skip(policy, table))}
    looked_at = [
        table
        for table in found
        if table.tableName not in reasons and table_kind(table) in {TableKind.EXTERNAL, TableKind.MANAGED}
    ]
    with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="formats") as workers:
        kept = workers.map(lambda table: _names_files(table, policy.storage_options), looked_at)
        for table, why in zip(looked_at, kept, strict=True):
            if why:
                reasons[table.tableName] = why
    return reasons


def _names_files(table: Any, options: Mapping[str, Any] | None) -> str | None:
    """Say which format keeps the names of a table's files in its directory; ``None`` if none does."""
    location = data_location(table)
    if not location:
        return None
    filesystem, path = open_filesystem(location, options)
    with storage_errors(location):
        for name, kept_by in _LOGS.items():
            filesystem.invalidate_cache(path)
            if filesystem.exists(f"{path}/{name}"):
                return (
                    f"its directory {location} has {name}: {kept_by} keeps names of its files there; "
                    "replicate it by that format's own means"
                )
        if provider_of(table) and filesystem.isfile(path):
            return f"Spark reads it from one file, {location}; create it anew with the path of a directory"
    return None

"""Finds tables of the source that stay out of the replica, each with the reason."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.metadata.spark_tables import data_location, provider_of
from airflow_hive_federation.replication.metadata.table_names import reason_to_skip
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.filesystem import open_filesystem, storage_errors
from airflow_hive_federation.storage.options import StorageOptions

#: Directories in which a table's format stores the names of its own files, with the format. Spark's streams
#: write absolute names (``org.apache.spark.sql.execution.streaming.FileStreamSink``).
_LOGS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi", "_spark_metadata": "Spark's streaming file sink"}
_THREADS = 8


def left_out(policy: ReplicationPolicy, tables: Iterable[types.Table]) -> dict[str, str]:
    """Return the reason for each table that stays out, by name.

    :param tables: wire ``Table`` objects of the source, with their names on the target.
    :raises StorageError: a table's directory cannot be read.
    """
    candidates = list(tables)
    reasons = {table.tableName: why for table in candidates if (why := reason_to_skip(policy, table))}
    examined = [
        table
        for table in candidates
        if table.tableName not in reasons and table_kind(table) in {TableKind.EXTERNAL, TableKind.MANAGED}
    ]
    with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="formats") as workers:
        format_reasons = workers.map(lambda table: _names_files(table, policy.storage_options), examined)
        for table, why in zip(examined, format_reasons, strict=True):
            if why:
                reasons[table.tableName] = why
    return reasons


def _names_files(table: types.Table, options: StorageOptions | None) -> str | None:
    """Return the reason for which a copy of a table's directory would not work; ``None`` if it would.

    Some formats store names of the table's files in its directory.
    """
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

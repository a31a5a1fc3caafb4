"""Detects changed files of an external table since its last dump, because these change without events."""

from __future__ import annotations

from airflow_hive_federation.replication.dump.contents import is_published, listed
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.metadata import external_tables
from airflow_hive_federation.replication.metadata.table_locations import TableLocations
from airflow_hive_federation.storage.options import StorageOptions


def files_changed(home: DumpDirectory, table: str, options: StorageOptions | None = None) -> bool:
    """Return whether an external table's files differ from its last dump in name, size or time.

    :param home: the dump that describes the table; its definition and partitions have not changed since.
    :param table: name of the external table.
    """
    partitions = (line.partition() for line in home.partitions(table))
    places = TableLocations(home.table(table).table, partitions)
    now = {
        (place.location, file.path, file.size_bytes, file.modified_ns)
        for place, files in listed(external_tables.roots(places), options)
        for file in files
        if is_published(file.path)
    }
    then = {(file.directory, file.path, file.size_bytes, file.modified_ns) for file in home.files(table)}
    return now != then

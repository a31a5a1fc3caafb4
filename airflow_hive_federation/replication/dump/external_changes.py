"""Detects changed files of an external table since its last dump, because these change without events."""

from __future__ import annotations

from collections import defaultdict

from airflow_hive_federation.replication.dump.contents import is_published, listed
from airflow_hive_federation.replication.dump.snapshot_changes import changed_paths
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.metadata import external_tables
from airflow_hive_federation.replication.metadata.table_locations import TableLocations
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.snapshots import snapshot_diff


def files_changed(
    home: DumpDirectory, table: str, options: StorageOptions | None = None, *, by_snapshot: bool = False
) -> bool:
    """Return whether an external table's files differ from its last dump in name, size or time.

    :param home: the dump that describes the table; its definition and partitions have not changed since.
    :param table: name of the external table.
    :param by_snapshot: compare with the snapshots of the dump, where they still are.
    """
    partitions = (line.partition() for line in home.partitions(table))
    document = home.table(table)
    places = TableLocations(document.table, partitions)
    if by_snapshot and (changed := _changed_since(document, home, places, options)) is not None:
        return changed
    now = {
        (place.location, file.path, file.size_bytes, file.modified_ns)
        for place, files in listed(external_tables.roots(places), options)
        for file in files
        if is_published(file.path)
    }
    then = {(file.directory, file.path, file.size_bytes, file.modified_ns) for file in home.files(table)}
    return now != then


def _changed_since(
    document: TableDocument, home: DumpDirectory, places: TableLocations, options: StorageOptions | None
) -> bool | None:
    """Return whether files have changed since the snapshots of a dump; ``None`` without all of these."""
    located = {place.location for place in external_tables.roots(places)}
    if not document.snapshots or located != document.snapshots.keys():
        return None
    known = defaultdict(set)
    for file in home.files(document.name):
        known[file.directory].add(file.path)
    for location, inside in document.snapshots.items():
        diff = snapshot_diff(inside.root, inside.name, "", options)
        if diff is None:
            return None
        if any(not path or is_published(path) for path in changed_paths(diff, inside.path, known[location])):
            return True
    return False

"""Finds transactional tables and partitions that were given other directories (``ALTER … SET LOCATION``).

The target has one directory for both, because a location outside of its table has no place of its own there.
A load leaves the directories of a transactional table that the source lacks, because readers pass over those
that a compaction replaced. So readers of the target would see the rows of both locations.

A directory that was moved with its files has the same rows, and is not copied anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.dump.event_fold import EventFold
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.metadata.locations import partition_location
from airflow_hive_federation.replication.metadata.table_locations import TableLocations
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.storage.filesystem import canonical
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.storage.options import StorageOptions

#: Partition and path of a file, its size in bytes, and its modification time in nanoseconds.
_Version = tuple[str, str, int, int]


def is_relocated(
    table: types.Table, folded: EventFold, index: TableIndex, options: StorageOptions | None = None
) -> bool:
    """Return whether a transactional table without partitions has another directory, with other files.

    :param table: wire ``Table`` as it is now.
    :param folded: the cycle's events; without one of the table, its definition is the same.
    :param index: the dumps that describe the tables as the target has them.
    :raises StorageError: the directory cannot be listed.
    """
    name = table.tableName
    if not table_kind(table).transactional or table.partitionKeys or name not in index:
        return False
    if name not in folded.looked_at and not folded.is_doubtful(name):
        return False
    before, location = index.of(name), str(table.sd.location)
    if canonical(location) == canonical(before.table(name).location):
        return False
    listing = list_files(location, options=options, missing_ok=True)
    now = {("", entry.path, entry.size_bytes, entry.modified_ns) for entry in listing}
    return not now.issuperset(_versions(before.files(name)))


def relocated_partitions(
    before: DumpDirectory, now: DumpDirectory, table: str, places: TableLocations
) -> set[str]:
    """Return the partitions of a transactional table that have other directories, with other files.

    Some of them may be gone.

    :param before: the dump that describes the table as the target has it.
    :param now: the dump that is being written, with the table's files.
    :param places: the places of its partitions now.
    """
    moved = set(_moved(before, table, places))
    if not moved:
        return set()
    present = set(_versions(now.files(table, sealed=False), moved))
    return {version[0] for version in _versions(before.files(table), moved) if version not in present}


def _moved(before: DumpDirectory, table: str, places: TableLocations) -> Iterator[str]:
    """Yield the partitions with another location to which the same directory of the target belongs."""
    root = before.table(table).location
    elsewhere = {place.partition: place.location for place in places.elsewhere()}
    for line in before.partitions(table):
        location = elsewhere.get(line.name) or f"{places.root}/{line.name}"
        if location == line.location or canonical(location) == canonical(line.location):
            continue
        if partition_location(location, places.root, "/", line.name) == partition_location(
            line.location, root, "/", line.name
        ):
            yield line.name


def _versions(files: Iterable[VisibleFile], partitions: Collection[str] | None = None) -> Iterator[_Version]:
    for file in files:
        if partitions is None or file.partition in partitions:
            yield file.partition, file.path, file.size_bytes, file.modified_ns

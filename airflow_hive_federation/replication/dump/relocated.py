"""Finds transactional tables and partitions that were given other directories (``ALTER … SET LOCATION``).

A load leaves the directories of a transactional table that the source lacks, because readers pass over those
that a compaction replaced. If a location is outside of its table, the target has one directory for both, and
its readers would see the rows of both. A directory that was moved with its files has the same rows, and is
not copied anew. If the target has two directories, the former one would keep its rows for the next partition
that gets it.

A load that was killed may have copied files of a directory that the source has left since, so the directories
of its dump count as former ones, too.

A managed table that becomes external has another directory on the target as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.dump.event_fold import EventFold
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.kinds import TableKind, TableWork
from airflow_hive_federation.replication.format.unfinished import UnfinishedLoads
from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.metadata.locations import partition_location
from airflow_hive_federation.replication.metadata.table_locations import TableLocations
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.storage.filesystem import canonical
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.storage.options import StorageOptions

#: Partition and path of a file, its size in bytes, and its modification time in nanoseconds.
_Version = tuple[str, str, int, int]


@dataclass(frozen=True, kw_only=True)
class FormerPlaces:
    """The directories from which the target's tables were copied.

    :param table_index: the dumps that describe the tables as the last published load left them.
    :param unfinished: the loads that were killed since.
    """

    table_index: TableIndex
    unfinished: UnfinishedLoads

    def of(self, table: str) -> Iterator[DumpDirectory]:
        """Yield the dumps that describe a table, some of whose files the target may have."""
        if table in self.table_index:
            yield self.table_index.of(table)
        for dump in self.unfinished.dumps:
            if any(entry.name == table for entry in dump.manifest().changed_tables):
                yield dump


def is_relocated(
    table: types.Table, folded: EventFold, former: FormerPlaces, options: StorageOptions | None = None
) -> bool:
    """Return whether a transactional table without partitions has another directory, with other files.

    :param table: wire ``Table`` as it is now.
    :param folded: the cycle's events; without one of the table, its definition is the same.
    :raises StorageError: the directory cannot be listed.
    """
    name = table.tableName
    if not table_kind(table).transactional or table.partitionKeys:
        return False
    if name not in folded.looked_at and not folded.is_doubtful(name):
        return False
    location = str(table.sd.location)
    others = [before for before in former.of(name) if not _is_same(location, before.table(name).location)]
    if not others:
        return False
    listing = list_files(location, options=options, missing_ok=True)
    now = {("", entry.path, entry.size_bytes, entry.modified_ns) for entry in listing}
    return any(not now.issuperset(_versions(before.files(name))) for before in others)


def is_external_now(table: types.Table, folded: EventFold, former: FormerPlaces) -> bool:
    """Return whether a table that is external was managed on the target, and has another directory there.

    An altered table would leave its files in the managed directory, for the next table of its name.

    :param table: wire ``Table`` as it is now.
    :param folded: the cycle's events; without one of the table, its definition is the same.
    """
    name = table.tableName
    if table_kind(table) is not TableKind.EXTERNAL:
        return False
    if name not in folded.looked_at and not folded.is_doubtful(name):
        return False
    kinds = {before.table(name).kind for before in former.of(name)}
    return any(kind.has_files and kind is not TableKind.EXTERNAL for kind in kinds)


def refuse_relocated(planned: types.Table, found: types.Table, work: TableWork) -> None:
    """Refuse a transactional table without partitions that got another directory after the dump's moment.

    Its files would be added to those of the former directory, and the next cycle would see no change.

    :param planned: wire ``Table`` at the moment, by which its work was planned.
    :param found: wire ``Table`` whose directory is about to be listed.
    :raises FileVanishedError: it has another directory.
    """
    if work is not TableWork.CONTINUE or found.partitionKeys:
        return
    if not (table_kind(planned).transactional and table_kind(found).transactional):
        # The cycle recognizes a table that has become transactional as another one.
        return
    if not _is_same(str(planned.sd.location), str(found.sd.location)):
        table = f"{found.dbName}.{found.tableName}"
        raise FileVanishedError(
            f"Table {table} was given another directory while it was dumped: {found.sd.location}.",
            remedy="Run the cycle again.",
            table=table,
            path=found.sd.location,
        )


def relocated_partitions(
    before: DumpDirectory, now: DumpDirectory, table: str, places: TableLocations
) -> set[str]:
    """Return the partitions of a transactional table that have other directories, and other files or places.

    Some of them may be gone.

    :param before: a dump that describes the table, and whose files the target may have.
    :param now: the dump that is being written, with the table's files.
    :param places: the places of its partitions now.
    """
    replaced: set[str] = set()
    moved: set[str] = set()
    for name, has_another_place in _moved(before, table, places):
        (replaced if has_another_place else moved).add(name)
    if moved:
        present = set(_versions(now.files(table, sealed=False), moved))
        replaced |= {
            version[0] for version in _versions(before.files(table), moved) if version not in present
        }
    return replaced


def _moved(before: DumpDirectory, table: str, places: TableLocations) -> Iterator[tuple[str, bool]]:
    """Yield the partitions with other directories; those of some are others on the target, too."""
    root = before.table(table).location
    elsewhere = {place.partition: place.location for place in places.elsewhere()}
    for line in before.partitions(table):
        location = elsewhere.get(line.name) or f"{places.root}/{line.name}"
        if location == line.location and places.root == root:
            continue
        former = partition_location(line.location, root, "/", line.name)
        if partition_location(location, places.root, "/", line.name) != former:
            yield line.name, True
        elif not _is_same(location, line.location):
            yield line.name, False


def _is_same(location: str, other: str) -> bool:
    return location == other or canonical(location) == canonical(other)


def _versions(files: Iterable[VisibleFile], partitions: Collection[str] | None = None) -> Iterator[_Version]:
    for file in files:
        if partitions is None or file.partition in partitions:
            yield file.partition, file.path, file.size_bytes, file.modified_ns

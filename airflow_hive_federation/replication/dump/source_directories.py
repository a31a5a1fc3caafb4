"""Checks that a table's directories on the source exist: an unmounted store resembles an empty one.

A directory is known to exist if a file was found in it. A file that it lacks was then removed; so was a
missing directory of a partition in it, which Hive reads as an empty one. If no file was found at all, nothing
is known: the directory may have been emptied, or its store may not be mounted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.replication.dump.evidence import Evidence
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import DataLocation
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.metadata.locations import relative_to
from airflow_hive_federation.replication.metadata.table_locations import TableLocations
from airflow_hive_federation.storage.filesystem import OBJECT_STORES, parse_location
from airflow_hive_federation.storage.listing import has_entries, is_there
from airflow_hive_federation.storage.options import StorageOptions


@dataclass(frozen=True, kw_only=True)
class BareDirectory:
    """A directory of a table without any file in it or below it.

    :param location: its URI.
    :param partition: name of the partition in it; empty for the table's directory. A partition inside the
        table's directory is bare only if its own directory is missing.
    :param missing: the directory does not exist.
    :param proved: the directory exists, or another entry lies beside it, so that its store is mounted.
    """

    location: str
    partition: str
    missing: bool
    proved: bool


class Sightings:
    """Counts the files of a table's listing in the table's directory, and in partitions outside it.

    :param places: the places of the table's data.
    """

    def __init__(self, places: TableLocations) -> None:
        self._root = places.root
        self._found: Counter[DataLocation] = Counter()
        if self._root:
            self._found[DataLocation(partition="", location=self._root)] = 0
        self._empty_inside: list[DataLocation] = []

    def watch(
        self, listings: Iterable[tuple[DataLocation, list[FileEntry]]]
    ) -> Iterator[tuple[DataLocation, list[FileEntry]]]:
        """Pass listings on, and count their files."""
        root = DataLocation(partition="", location=self._root)
        for place, listing in listings:
            inside = relative_to(place.location, self._root) is not None
            self._found[root if inside else place] += len(listing)
            if inside and place.partition and not listing:
                self._empty_inside.append(place)
            yield place, listing

    def bare(self, options: StorageOptions | None = None) -> list[BareDirectory]:
        """Return the directories without files."""
        bare_directories = [_looked_at(place, options) for place, count in self._found.items() if not count]
        if any(directory.missing and not directory.partition for directory in bare_directories):
            # All directories inside are missing, too.
            return bare_directories
        inside = [place for place in self._empty_inside if not _is_there(place.location, options)]
        return bare_directories + [
            BareDirectory(location=inner.location, partition=inner.partition, missing=True, proved=True)
            for inner in inside
        ]


@dataclass(frozen=True, kw_only=True)
class LostFiles:
    """Files of a replica that would be removed because their directory on the source has no files.

    :param location: URI of the directory on the source.
    :param missing: the directory does not exist; otherwise it is empty.
    :param files: number of files that would be removed.
    :param of: number of files of the table's replica.
    """

    location: str
    missing: bool
    files: int
    of: int


def new_directories_missing(bare: Iterable[BareDirectory], kind: TableKind) -> list[str]:
    """Return missing directories of new tables and partitions, which cannot be dumped without them.

    Hive's replication demands the directory of a table and, unless the table is external, of each partition
    (``TestReplicationScenarios.testDumpWithPartitionDirMissing``). It copies external tables by their roots;
    a partition outside of its table's directory has to lie in a mounted store.
    """
    external = kind is TableKind.EXTERNAL
    return [
        directory.location
        for directory in bare
        if directory.missing and not (external and directory.partition and directory.proved)
    ]


def lost_files(
    home: DumpDirectory,
    table: str,
    bare: Sequence[BareDirectory],
    evidence: Evidence,
    *,
    before: Collection[str],
    kind: TableKind,
) -> tuple[list[LostFiles], list[str]]:
    """Return the files that the replica of a table would lose, and missing directories.

    :param home: the dump that describes the target's replica of the table.
    :param bare: the directories without files now.
    :param evidence: evidence from the source's events since that dump.
    :param before: names of the partitions in that dump. Hive reads a partition without a directory as empty.
    :return: files whose loss nothing explains; and directories that are missing although no files were known
        to lie in them.
    """
    root = home.table(table).location
    counted: Counter[str] = Counter()
    total = 0
    explained = _explained_places(home, table, evidence)
    for file in home.files(table):
        total += 1
        if not (evidence.of_files(table, file.partition) or explained.intersection(_parents(file.uri))):
            counted[root if relative_to(file.directory, root) is not None else file.directory] += 1
    lost = [
        LostFiles(
            location=bare_directory.location,
            missing=bare_directory.missing,
            files=counted[bare_directory.location],
            of=total,
        )
        for bare_directory in bare
        if counted[bare_directory.location]
    ]
    without_files = [
        candidate
        for candidate in bare
        if not counted[candidate.location]
        and (candidate.partition or candidate.location != root)
        and not (candidate.proved and candidate.partition in before)
    ]
    return lost, new_directories_missing(without_files, kind)


def _looked_at(place: DataLocation, options: StorageOptions | None) -> BareDirectory:
    missing = not _is_there(place.location, options)
    parent = place.location.rstrip("/").rpartition("/")[0]
    return BareDirectory(
        location=place.location,
        partition=place.partition,
        missing=missing,
        proved=not missing or has_entries(parent, options=options),
    )


def _explained_places(home: DumpDirectory, table: str, evidence: Evidence) -> set[str]:
    """Return the locations of partitions whose rows were removed according to events."""
    if not evidence.speaks_of_partitions(table):
        return set()
    return {line.location for line in home.partitions(table) if evidence.of_files(table, line.name)}


def _parents(uri: str) -> Iterator[str]:
    while "/" in uri:
        uri = uri.rpartition("/")[0]
        yield uri


def _is_there(location: str, options: StorageOptions | None) -> bool:
    # Object stores have no empty directories: their bucket has answered, so the store is mounted.
    return parse_location(location).scheme in OBJECT_STORES or is_there(location, options=options)

"""Finds transactional tables and partitions whose files a TRUNCATE has removed.

Hive 3.1 removes the files, and leaves no directory that hides their rows; so does Hive 4 if its metastore has
``metastore.acid.truncate.usebase`` set to false. A load leaves the directories of a transactional table that
the source lacks, because readers pass over those that a compaction replaced. So the rows would stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from airflow_hive_federation.acid.markers import chosen
from airflow_hive_federation.acid.names import (
    DirectoryKind,
    DirectoryName,
    is_acid_directory,
    parse_directory,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.replication.dump.event_fold import EventFold
from airflow_hive_federation.replication.dump.relocated import FormerPlaces
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.storage.options import StorageOptions


def is_truncated(
    table: types.Table,
    write_ids: ValidWriteIds | None,
    transactions: ValidTxns,
    folded: EventFold,
    former: FormerPlaces,
    *,
    options: StorageOptions | None = None,
) -> bool:
    """Return whether files of a transactional table without partitions were removed, and their rows stay.

    :param table: wire ``Table`` as it is now.
    :param write_ids: its write ids at the dump's moment; ``None`` for a table without.
    :param transactions: the source's transactions at the dump's moment.
    :param folded: the cycle's events, one of which has to record the removal.
    :raises AcidFormatError: its directory holds no snapshot of the moment.
    :raises StorageError: its directory cannot be listed.
    """
    if write_ids is None or table.partitionKeys or not folded.evidence.of_files(table.tableName):
        return False
    location = str(table.sd.location)
    listing = list(list_files(location, options=options, missing_ok=True, empty_directories=True))
    # Directories that readers do not see replace none: those of compactions and writes that failed.
    state = chosen(location, listing, write_ids, transactions, options)
    present = _Present(directories={directory.name for directory in state.directories})
    for entry in listing:
        present.add(entry.path, counts=False)
    return any(
        present.lacks(file) for before in former.of(table.tableName) for file in before.files(table.tableName)
    )


def truncated_partitions(
    before: DumpDirectory, now: DumpDirectory, table: str, is_emptied: Callable[[str], bool]
) -> set[str]:
    """Return the partitions of a transactional table whose files were removed, and whose rows stay.

    Some of them may be gone.

    :param before: a dump that describes the table, and whose files the target may have.
    :param now: the dump that is being written, with the table's files.
    :param is_emptied: returns whether an event records that the rows of a partition were removed.
    """
    present: defaultdict[str, _Present] = defaultdict(_Present)
    for file in now.files(table, sealed=False):
        if is_emptied(file.partition):
            present[file.partition].add(file.path)
    return {
        file.partition
        for file in before.files(table)
        if is_emptied(file.partition) and present[file.partition].lacks(file)
    }


class _Present:
    """The files of a table or partition.

    :param directories: the directories that readers see, as far as they are known without the files.
    """

    def __init__(self, directories: Iterable[DirectoryName] = ()) -> None:
        self._paths: set[str] = set()
        self._directories = {*directories}

    def add(self, path: str, *, counts: bool = True) -> None:
        """Add a file.

        :param counts: readers see its directory, which may replace others.
        """
        self._paths.add(path)
        directory = _directory_of(path)
        if counts and directory is not None:
            self._directories.add(directory)

    def lacks(self, file: VisibleFile) -> bool:
        """Return whether a file is gone, and no base and no result of a compaction replaces it."""
        if file.path in self._paths:
            return False
        gone = _directory_of(file.path)
        return not any(_replaces(directory, gone) for directory in self._directories)


def _replaces(directory: DirectoryName, gone: DirectoryName | None) -> bool:
    begin, end = (gone.min_write_id, gone.max_write_id) if gone else (0, 0)
    if directory.kind is DirectoryKind.BASE:
        return directory.max_write_id >= end
    if gone is None or directory.kind is not gone.kind or directory.statement_id is not None:
        return False
    return directory != gone and directory.min_write_id <= begin and end <= directory.max_write_id


def _directory_of(path: str) -> DirectoryName | None:
    """Return the base or delta in which a file lies; ``None`` for a file of Hive's older layout."""
    name = path.split("/", maxsplit=1)[0]
    return parse_directory(name) if is_acid_directory(name) else None

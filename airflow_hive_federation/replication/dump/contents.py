"""Lists the files that a reader of a table sees at one cut, for dumps and for verifications."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice

from airflow_hive_federation.acid.markers import chosen
from airflow_hive_federation.acid.names import ACID_VERSION, VERSION_FILE
from airflow_hive_federation.acid.side_files import read_flushed_length
from airflow_hive_federation.acid.snapshot import AcidDirectory, AcidState
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.replication.dump.directory_digests import DirectoryDigests
from airflow_hive_federation.replication.dump.source_directories import Sightings
from airflow_hive_federation.replication.format.files import DataLocation, VisibleFile, target_file_path
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.metadata import external_tables
from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.metadata.locations import relative_to
from airflow_hive_federation.replication.metadata.table_locations import TableLocations
from airflow_hive_federation.replication.replica.external_claims import is_external_claim
from airflow_hive_federation.storage.filesystem import OBJECT_STORES, join, parse_location
from airflow_hive_federation.storage.listing import list_files, list_many
from airflow_hive_federation.storage.options import StorageOptions

logger = logging.getLogger(__name__)

#: Lists directories, one after the other.
Lister = Callable[[Iterable[DataLocation]], Iterator[tuple[DataLocation, list[FileEntry]]]]

#: This many directories are listed before the first of them is processed.
_PLACES_AT_A_TIME = 500
#: Prefixes of the names that writers use before they publish: Hive's ``hive.exec.stagingdir``,
#: ``Utilities.tmpPrefix`` and ``taskTmpPrefix``, Hadoop's ``FileOutputCommitter`` and Spark's staging.
_UNPUBLISHED = (".hive-staging", "_tmp", "_task_tmp", "_temporary", ".spark-staging")


def visible_files(
    table: types.Table,
    places: TableLocations,
    write_ids: ValidWriteIds | None,
    transactions: ValidTxns,
    *,
    options: StorageOptions | None = None,
    sightings: Sightings | None = None,
    digests: DirectoryDigests | None = None,
    singly: bool = False,
    list_external: Lister | None = None,
) -> Iterator[VisibleFile]:
    """Yield the files that a reader of a table opens, one directory after the other.

    :param places: the places of its data.
    :param write_ids: its valid write ids, for an ACID table.
    :param transactions: transactions that the reader sees.
    :param sightings: counts the files that are found.
    :param digests: takes digests of the directories that are found.
    :param singly: the places are some of a table's, none inside another: only their directories are listed.
    :param list_external: lists the directories of an external table; by default, their present state.
    :raises AcidFormatError: an ACID directory cannot be read, or cannot be copied row by row.
    """
    kind = table_kind(table)
    if not kind.has_files:
        return
    if kind is TableKind.EXTERNAL:
        # The design of replication V2 copies the directory as a whole, whatever lies in it, and partitions
        # that lie elsewhere.
        roots = external_tables.roots(places)
        listings = list_external(roots) if list_external else listed(roots, options)
    else:
        # A base may be an empty directory, which hides all earlier files from readers of Hive 3.
        list_by = listed if singly else listed_places
        listings = list_by(places, options, empty_directories=kind.transactional)
    for watcher in (sightings, digests):
        listings = watcher.watch(listings) if watcher else listings
    for place, listing in listings:
        if kind.transactional and write_ids is not None:
            name = f"{table.dbName}.{table.tableName}"
            state = chosen(place.location, listing, write_ids, transactions, options)
            for file in _acid_files(name, kind, place, state, write_ids):
                # A reader opens no file before its first commit.
                if not file.side_file or _flushed_length(file, options) != 0:
                    yield file
        else:
            yield from (_visible(place, entry, entry.path) for entry in listing if is_published(entry.path))


def is_published(path: str) -> bool:
    """Return whether the writer of a file has finished it, for tables without transactions.

    Files below the directories that engines write first are not finished: they are removed or renamed later.
    All others are copied, whether or not Hive's readers see them (``_SUCCESS``, ``_delta_log``), as
    ``distcp`` does in Hive's replication: other readers of the directory may need them. Claims of targets are
    no files of the table.

    :param path: path inside the table's or partition's directory.
    """
    if is_external_claim(path):
        return False
    # A partition's directory may have any name.
    return not any(part.startswith(_UNPUBLISHED) and "=" not in part for part in path.split("/"))


def cut_below_open(write_ids: ValidWriteIds) -> ValidWriteIds:
    """Cut write ids just below the lowest open one; the files up to there can be copied for good."""
    return write_ids.cut(write_ids.open_ids[0] - 1) if write_ids.open_ids else write_ids


def listed(
    places: Iterable[DataLocation], options: StorageOptions | None, *, empty_directories: bool = False
) -> Iterator[tuple[DataLocation, list[FileEntry]]]:
    """List places one by one, many in parallel, without keeping them in memory."""
    waiting = iter(places)
    while batch := list(islice(waiting, _PLACES_AT_A_TIME)):
        # Hive reads a partition without a directory as empty, and so must its replica.
        listings = list_many(
            [place.location for place in batch],
            options=options,
            missing_ok=True,
            empty_directories=empty_directories,
        )
        yield from ((place, listings[place.location]) for place in batch)


def listed_places(
    places: TableLocations, options: StorageOptions | None, *, empty_directories: bool = False
) -> Iterator[tuple[DataLocation, list[FileEntry]]]:
    """List the places of a table that is not external.

    Object stores return a thousand files per answer, of whatever directories: in such a store, the table's
    directory is listed as a whole. So it is if a partition may lie inside another one.
    """
    whole = parse_location(places.root).scheme in OBJECT_STORES if places.root else False
    list_by = _listed_as_whole if whole or not places.apart else listed
    return list_by(places, options, empty_directories=empty_directories)


def _listed_as_whole(
    places: TableLocations, options: StorageOptions | None, *, empty_directories: bool
) -> Iterator[tuple[DataLocation, list[FileEntry]]]:
    root = places.root
    inside = {path: place for place in places if (path := relative_to(place.location, root)) is not None}
    listings: dict[str, list[FileEntry]] = {path: [] for path in inside}
    depths = sorted({path.count("/") + 1 if path else 0 for path in inside}, reverse=True)
    listing = (
        list_files(root, options=options, missing_ok=True, empty_directories=empty_directories)
        if inside
        else ()
    )
    for entry in listing:
        parts = entry.path.split("/")
        home = next((path for depth in depths if (path := "/".join(parts[:depth])) in inside), None)
        inner = entry.path[len(home) + 1 :] if home else entry.path
        # A file elsewhere below the directory belongs to no place. A place that is empty is not listed in
        # itself: that would count as a file that was found.
        if home is not None and inner:
            listings[home].append(
                FileEntry(path=inner, size_bytes=entry.size_bytes, modified_ns=entry.modified_ns)
            )
    for path, place in inside.items():
        yield place, listings[path]
    yield from listed(places.outside(), options, empty_directories=empty_directories)


def _acid_files(
    table: str, kind: TableKind, place: DataLocation, state: AcidState, write_ids: ValidWriteIds
) -> Iterator[VisibleFile]:
    being_written = state.side_files
    yield from (_visible(place, entry, entry.path) for entry in state.originals)
    for directory in state.directories:
        mixed = _holds_invisible_rows(directory)
        if mixed and kind is TableKind.INSERT_ONLY:
            raise AcidFormatError(
                f"{table}: {place.location}/{directory.path} mixes committed with other write ids "
                f"({write_ids.text()}), and its files have no write ids to tell rows apart.",
                remedy="Compact the table on the source, then dump again.",
                path=f"{place.location}/{directory.path}",
            )
        if directory is state.base and not directory.files:
            # A base without rows holds at most markers, and hides all earlier files.
            yield from (_visible(place, entry, target_file_path(entry.path)) for entry in directory.markers)
            if not directory.markers:
                yield _version_file(place, directory)
        for entry in directory.files:
            filtered = mixed or entry.path in being_written
            side_file = being_written.get(entry.path, "")
            yield _visible(place, entry, target_file_path(entry.path), filtered=filtered, side_file=side_file)


def _flushed_length(file: VisibleFile, options: StorageOptions | None) -> int | None:
    return read_flushed_length(join(file.directory, file.side_file), options)


def _holds_invisible_rows(directory: AcidDirectory) -> bool:
    # A compactor omits the rows of aborted write ids, so its directories hold none of them.
    return directory.mixed and not directory.name.visibility_txn_id


def _version_file(place: DataLocation, base: AcidDirectory) -> VisibleFile:
    """Return the file in place of an empty directory, which an object store would not keep."""
    entry = FileEntry(path=f"{base.path}/{VERSION_FILE}", size_bytes=len(ACID_VERSION))
    return replace(_visible(place, entry, target_file_path(entry.path)), empty_base=True)


def _visible(
    place: DataLocation, entry: FileEntry, target_path: str, *, filtered: bool = False, side_file: str = ""
) -> VisibleFile:
    return VisibleFile(
        directory=place.location,
        partition=place.partition,
        path=entry.path,
        target_path=target_path,
        size_bytes=entry.size_bytes,
        modified_ns=entry.modified_ns,
        filtered=filtered,
        side_file=side_file,
    )

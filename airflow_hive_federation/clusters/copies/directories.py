"""Names the directories of copies, and removes those that metadata no longer names, now or by a sweep."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from airflow_hive_federation.clusters.altering import full_name, object_name, partitions_by_name
from airflow_hive_federation.clusters.locking import alone_with_copies
from airflow_hive_federation.clusters.metadata import Secondary, read_metadata
from airflow_hive_federation.clusters.notes import (
    Kind,
    Note,
    foreign_files,
    forget,
    is_in_place,
    note_of,
    remove_noted,
    take_note,
)
from airflow_hive_federation.clusters.registry import Cluster
from airflow_hive_federation.clusters.sweeping import named_directories
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.filesystem import canonical, join, parse_location
from airflow_hive_federation.storage.options import StorageOptions

log = logging.getLogger(__name__)
_KINDS = (Kind.FORMER_PRIMARY, Kind.COPY)
_COPIES = ".copies"


def home_of(cluster: Cluster, table: types.Table) -> str:
    """Return the URI of a cluster's directory for a table whose primary it is."""
    return join(cluster.root, f"{table.dbName}.db", str(table.tableName))


def copies_home(cluster: Cluster, table: types.Table) -> str:
    """Return the URI of a cluster's directory for the copies of a table.

    No directory of a primary contains it: readers list such a directory with all directories below it. A
    former primary has such readers for a day, and a partition may be added at its default location again.
    """
    return f"{home_of(cluster, table)}{_COPIES}"


def is_among_copies(cluster: Cluster, uri: str) -> bool:
    """Return whether a directory of a cluster lies in the place for copies of a table, of whatever name.

    A renamed table has its earlier copies in the directory of its former name.
    """
    root = parse_location(cluster.root).path
    below_root = parse_location(uri).path.removeprefix(root).strip("/").split("/")
    return any(part.endswith(_COPIES) for part in below_root[1:2])


@dataclass(frozen=True)
class DropNotes:
    """Takes the notes of directories anew, before metadata stops naming these as copies of a table.

    Statements that were planned before read the directories; their time is counted from these notes. Each
    note is taken once: for what a run sees before it takes a lock, and under the lock for what has changed.

    :param taken: the directories whose notes were taken, with the time in each note.
    """

    cluster: Cluster
    table: types.Table
    options: StorageOptions | None = field(repr=False)
    taken: dict[str, float] = field(default_factory=dict)

    def take(self, copy: Secondary, *, keep: Collection[str | None] = ()) -> list[str]:
        """Take the notes of a copy's directories; return the directories.

        :param keep: directories that metadata goes on to name.
        :raises StorageError: a note cannot be read or written.
        """
        unnamed = [uri for uri in copy.directories if uri not in keep]
        for uri in unnamed:
            if uri not in self.taken:
                self.taken[uri] = time.time()
                self._take(uri, self.taken[uri])
        return unnamed

    def take_seen(self, objects: Iterable[types.Partition], *, only_former: bool = False) -> None:
        """Take the notes of the copies of partitions, as they were read without a lock.

        :param only_former: the directories of the copies themselves stay named.
        :raises StorageError: a note cannot be read or written.
        :raises ClusterMetadataError: the cluster metadata of a partition is damaged.
        """
        for item in objects:
            metadata = read_metadata(item.parameters, object_name(self.table, item))
            copy = metadata.secondaries.get(self.cluster.name)
            if copy is not None:
                self.take(copy, keep={copy.location} if only_former else ())

    def _take(self, uri: str, taken_s: float) -> None:
        note = _note_for(uri, self.cluster, self.table, self.options)
        if note is not None:
            # A note of an earlier version lacks the identity, and one of a renamed table its present name:
            # without them, a sweep leaves the directory. It has to leave a former primary of a renamed table,
            # where a later table of the former name may lie.
            name = note.table if note.kind is Kind.FORMER_PRIMARY else full_name(self.table)
            again = replace(
                note,
                taken_s=taken_s,
                table=name,
                created_s=self.table.createTime or 0,
                table_id=self.table.id or 0,
                becomes_primary=False,
            )
            take_note(self.cluster, again, self.options)


def notes_of_copies(
    uris: Iterable[str], cluster: Cluster, table: types.Table, options: StorageOptions | None
) -> list[Note]:
    """Return the notes of copies' directories, which a refused change of the primary takes again.

    A killed run may have forgotten the note of a copy. A former primary without a note gets none.

    :raises StorageError: a note cannot be read.
    """
    notes = []
    for uri in uris:
        kept = [note for kind in _KINDS if (note := note_of(cluster, kind, uri, options))]
        of_copy = Note.of(table, Kind.COPY, uri)
        notes += kept or [note for note in [of_copy] if is_in_place(note, cluster)]
    return [replace(note, becomes_primary=False) for note in notes]


def mark_becoming_primary(cluster: Cluster, uri: str, options: StorageOptions | None) -> None:
    """Mark the notes of a copy whose directory is about to become that of the primary.

    :raises StorageError: a note cannot be read or written.
    """
    for kind in _KINDS:
        note = note_of(cluster, kind, uri, options)
        if note is not None:
            take_note(cluster, replace(note, becomes_primary=True), options)


def release(
    uris: Iterable[str],
    cluster: Cluster,
    table: types.Table,
    *,
    primaries: Collection[str],
    at_once: bool,
    options: StorageOptions | None,
) -> tuple[list[str], list[str]]:
    """Remove directories that metadata has stopped naming as copies, or leave them to a sweep.

    Directories of primaries stay, and lose their notes: to read the table while the primary's site is down,
    somebody may have set its location to the copy.

    :param primaries: the present locations of the table, or of the partitions that had the copies.
    :param at_once: remove the directories now, although statements may read them. The caller holds the lock
        of the table's copies exclusively: a new copy of the same files would be made in the same directory.
    :return: the directories that were removed, and those that are left to a sweep.
    :raises StorageError: a directory cannot be removed.
    """
    in_use = {canonical(uri) for uri in primaries}
    removed, left = [], []
    for uri in uris:
        if canonical(uri) in in_use:
            log.warning("%s is left, because it is the location of the primary", uri)
            for kind in _KINDS:
                forget(cluster, kind, uri, options)
        elif (note := _note_for(uri, cluster, table, options)) is None:
            log.warning("%s is left, because it has no note of a copy of %s", uri, full_name(table))
        elif not at_once or (note.kind is Kind.FORMER_PRIMARY and _is_of_others(note, table, options)):
            left.append(uri)
        elif remove_noted(cluster, note, options):
            removed.append(uri)
    return removed, left


def remove_released(
    client: MetastoreClient,
    uris: Sequence[str],
    cluster: Cluster,
    table: types.Table,
    *,
    partitions: Sequence[str],
    options: StorageOptions | None,
) -> tuple[list[str], list[str]]:
    """Remove directories that :func:`release` has left, although statements may read them.

    The directory of a new copy of the same files is the same one. So no copy of the table is made meanwhile,
    and metadata is read again: since the release, a copy may have been published, or a location set.

    :param partitions: the names of the partitions that had the copies; empty for a table without partitions.
    :return: the directories that were removed, and those that are left to a sweep: all of them if a copy of
        the table is being made.
    :raises StorageError: a directory cannot be removed.
    :raises NoSuchLockError: the lock expired; a sweep removes the other directories.
    """
    name = full_name(table)
    removed: list[str] = []
    with alone_with_copies(client, name) as renew:
        if renew is None:
            return [], list(uris)
        present = client.get_table(*name.split(".", 1))
        objects = [present, *(partitions_by_name(client, present, partitions).values() if partitions else ())]
        in_use = named_directories(present, objects)
        unused = [uri for uri in uris if canonical(uri) not in in_use]
        for uri in unused:
            renew()
            removed += release([uri], cluster, present, primaries=(), at_once=True, options=options)[0]
    return removed, [uri for uri in uris if uri not in removed]


def _note_for(uri: str, cluster: Cluster, table: types.Table, options: StorageOptions | None) -> Note | None:
    """Return the note by which the directory of a copy or of a former primary belongs to a table."""
    notes = (note_of(cluster, kind, uri, options) for kind in _KINDS)
    return next((note for note in notes if note is not None and note.is_of_namer(table)), None)


def _is_of_others(note: Note, table: types.Table, options: StorageOptions | None) -> bool:
    """Return whether the directory of a former primary may have files of others, or be another table's."""
    return note.table != full_name(table) or bool(foreign_files(note, options))

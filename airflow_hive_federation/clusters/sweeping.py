"""Removes the directories that killed runs have left in a cluster, by their notes."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from airflow_hive_federation.clusters.altering import object_name, partitions_by_name, split_name
from airflow_hive_federation.clusters.dropped import PresentTables, drop_events, lacks_primary, with_drop
from airflow_hive_federation.clusters.locking import alone_with_copies
from airflow_hive_federation.clusters.metadata import read_metadata
from airflow_hive_federation.clusters.notes import (
    DamagedNote,
    Kind,
    Note,
    foreign_files,
    forget,
    note_of,
    read_notes,
    remove_noted,
    take_note,
    uri_of_note,
)
from airflow_hive_federation.clusters.registry import Cluster, ClusterRegistry
from airflow_hive_federation.errors import (
    ClusterMetadataError,
    ConfigurationError,
    NoSuchObjectError,
    StorageError,
)
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.filesystem import canonical
from airflow_hive_federation.storage.options import StorageOptions

log = logging.getLogger(__name__)
_WEEK_S = 7 * 24 * 3600.0
#: Statements that were planned before a change of the primary, or before a copy was dropped or replaced, read
#: the former directory; most end within a day.
FORMER_S = 24 * 3600.0
_MAY_READ = "statements that were planned earlier may still read it"


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """The result of a sweep.

    :param cluster: the cluster that was swept.
    :param removed: the directories that were removed.
    :param used: the number of directories that metadata names.
    :param left: the directories that were left, with the reasons.
    """

    cluster: str
    removed: list[str] = field(default_factory=list)
    used: int = 0
    left: dict[str, str] = field(default_factory=dict)


def sweep_cluster(
    client: MetastoreClient,
    registry: ClusterRegistry,
    cluster: str,
    *,
    table: str | None = None,
    statements_older_than_s: float = _WEEK_S,
    former_older_than_s: float = FORMER_S,
    copies_older_than_s: float | None = None,
    options: StorageOptions | None = None,
) -> SweepReport:
    """Remove the directories in a cluster that a note names and no metadata names.

    It leaves the directories of tables that are being copied for the next run, and those of tables that no
    longer exist, which may have been renamed, and whose name another table may have now, unless an event of
    the metastore records that the table was dropped (:mod:`.clusters.dropped`). A renamed table takes the
    notes of its copies along when they are dropped or replaced; its former primaries go when its primary is
    set again. In the primary cluster of a table, it leaves the directories that a change of the primary has
    noted, because that change has not ended. It leaves former primaries in which others have written files.

    A damaged note stays, and so do all directories of a table whose cluster metadata is damaged; the sweep
    goes on with the others before it reports the damage. A sweep of one table only logs damaged notes that
    do not name the table.

    :param cluster: the name of the cluster.
    :param table: sweep only directories of this table, ``database.table``.
    :param statements_older_than_s: the age in seconds below which directories of statements are left.
    :param former_older_than_s: the age in seconds of the change below which former primaries are left, and
        copies that were dropped or replaced, or whose run was killed.
    :param copies_older_than_s: the same age for copies alone; by default that for former primaries.
    :raises UnknownClusterError: the cluster does not exist.
    :raises CopyRefusedError: ``table`` is no name of a table; nothing was removed.
    :raises StorageError: notes are damaged or cannot be read, or a directory cannot be removed.
    :raises ClusterMetadataError: cluster metadata of tables is damaged; none of their directories is removed.
    :raises NoSuchLockError: the lock of a table expired during a removal; sweep again.
    """
    swept = registry.cluster(cluster)
    # Statements have the empty name.
    table = None if table is None else ".".join(split_name(table))
    copies_age_s = former_older_than_s if copies_older_than_s is None else copies_older_than_s
    ages_s = {Kind.FORMER_PRIMARY: former_older_than_s, Kind.COPY: copies_age_s}
    removed: list[str] = []
    left_with_reasons: dict[str, str] = {}
    used = 0
    damaged_tables: list[ClusterMetadataError] = []
    tables = PresentTables(client)
    all_notes, damaged = read_notes(swept, options)
    chosen = [item for item in all_notes if table in {None, item.table}]
    for name, notes_of_table in groupby(sorted(chosen, key=_table_of), key=_table_of):
        notes = list(notes_of_table)
        if name:
            with alone_with_copies(client, name) as renew:
                if renew is None:
                    left_with_reasons |= dict.fromkeys(_directories(notes), "a copy of it is being made")
                    continue
                try:
                    unused, left, in_use = _unused(
                        client,
                        registry,
                        swept,
                        name,
                        notes,
                        renew=renew,
                        ages_s=ages_s,
                        tables=tables,
                        options=options,
                    )
                except ClusterMetadataError as error:
                    damaged_tables.append(error)
                    continue
                for item in unused:
                    renew()
                    removed += _remove(swept, [item], options)
                left_with_reasons |= left
                used += in_use
        else:
            old = [item for item in notes if item.taken_s < time.time() - statements_older_than_s]
            removed += _remove(swept, old, options)
            left_with_reasons.update({item.directory: "it is too young" for item in notes if item not in old})
    _report_damaged(swept, damaged, damaged_tables, table, removed)
    return SweepReport(cluster=swept.name, removed=removed, used=used, left=left_with_reasons)


def days_in_seconds(days: float | str) -> float:
    """Return an age in seconds.

    :raises ConfigurationError: the text is not a number of days.
    """
    try:
        age_s = float(days) * 24 * 3600
    except ValueError:
        age_s = math.nan
    # No age is above one that is not a number, so that everything would be removed.
    if not 0 <= age_s < math.inf:
        raise ConfigurationError(
            f"{days!r} is not a number of days.", remedy="Write a number from 0 on, such as 7 or 0.5."
        )
    return age_s


def _report_damaged(
    swept: Cluster,
    damaged: Iterable[DamagedNote],
    tables: Sequence[ClusterMetadataError],
    table: str | None,
    removed: Sequence[str],
) -> None:
    """Raise an error that names the damage; log damaged notes of tables that were not to be swept.

    :param tables: the errors of tables whose metadata is damaged.
    :param table: see :func:`sweep_cluster`.
    """
    reported = []
    for note in damaged:
        if table in {None, note.table}:
            reported.append(note)
        else:
            log.warning("%s %s. %s", note.uri, note.reason, note.remedy)
    texts = [f"{note.uri} {note.reason}" for note in reported]
    names = ", ".join(texts[:5]) + (", ..." if texts[5:] else "")
    notes = _count(len(reported), "damaged note", "damaged notes")
    others = f"and removed {_count(len(removed), 'directory', 'directories')} of other notes"
    if tables:
        messages = [error.message for error in tables[:5]] + (["..."] if tables[5:] else [])
        messages += [f"Damaged notes: {names}."] if reported else []
        described = f"{_count(len(tables), 'table', 'tables')} with damaged metadata"
        raise ClusterMetadataError(
            f"The sweep of cluster {swept.name} has left the directories of {described}"
            f"{f' and of {notes}' if reported else ''}, {others}. {' '.join(messages)}",
            remedy=" ".join([str(tables[0].remedy), *(note.remedy for note in reported[:1])]),
            **tables[0].facts,
        )
    if reported:
        raise StorageError(
            f"The sweep of cluster {swept.name} has left the directories of {notes}, {others}: {names}.",
            remedy=reported[0].remedy,
            path=reported[0].uri,
        )


def named_directories(table: types.Table, objects: Iterable[types.Table | types.Partition]) -> frozenset[str]:
    """Return the directories that metadata names: of primaries, of copies, and of previous copies.

    :raises ClusterMetadataError: cluster metadata is damaged.
    """
    in_use: set[str] = set()
    for item in objects:
        object_title = object_name(table, item if isinstance(item, types.Partition) else None)
        copies = read_metadata(item.parameters, object_title).secondaries.values()
        locations = [
            item.sd and item.sd.location,
            *(place for copy in copies for place in copy.directories),
        ]
        in_use.update(canonical(place) for place in locations if place)
    return frozenset(in_use)


def reason_to_leave(
    note: Note, table: types.Table, former_older_than_s: float, options: StorageOptions | None
) -> str:
    """Return the reason to leave a directory that no metadata names; empty if there is none.

    :param table: the table of the note's name.
    :param former_older_than_s: see :func:`sweep_cluster`.
    :raises StorageError: the directory cannot be listed.
    """
    if not note.is_of(table):
        if not note.created_s:
            return (
                "its note is of an earlier version, and does not identify the table; if no table uses the "
                "directory, remove it and the note"
            )
        return (
            f"its note is of another table that was named {note.table}; if that one was renamed, drop or "
            "copy it again, or set its primary again, under its present name, and if it was dropped, remove "
            "the directory and its note"
        )
    if note.becomes_primary:
        return (
            f"a killed change of the primary of {note.table} may have made it the directory of the primary; "
            "if no table or partition uses it, remove it and its note"
        )
    if note.kind is Kind.FORMER_PRIMARY and (others := foreign_files(note, options)):
        return f"others have written files there since the change of the primary: {', '.join(others[:5])}"
    if note.kind is not Kind.PLAN and note.taken_s > time.time() - former_older_than_s:
        return _MAY_READ
    return ""


def _unused(
    client: MetastoreClient,
    registry: ClusterRegistry,
    swept: Cluster,
    name: str,
    notes: Sequence[Note],
    *,
    renew: Callable[[], None],
    ages_s: Mapping[Kind, float],
    tables: PresentTables,
    options: StorageOptions | None,
) -> tuple[list[Note], dict[str, str], int]:
    """Return the notes of unused directories, the directories to leave, with reasons, and the number in use.

    :param name: the table of all the notes.
    :param renew: see :func:`.locking.alone_with_copies`.
    :param ages_s: the ages in seconds, by kind of note, below which directories are left.
    :param tables: the tables of the metastore.
    """
    try:
        table = client.get_table(*split_name(name))
    except NoSuchObjectError:
        unused, left = _of_no_table(client, swept, name, notes, ages_s=ages_s, tables=tables, options=options)
        return unused, left, 0
    partitions = partitions_by_name(client, table).values() if table.partitionKeys else ()
    objects = [table, *partitions]
    in_use = named_directories(table, objects)
    _settle_marks(swept, table, objects, notes, renew=renew, options=options)
    primary = read_metadata(table.parameters, name).primary or registry.default_cluster().name

    events = drop_events(client, name)

    def reason_to_keep(note: Note) -> str:
        if not note.is_of(table) and (note := with_drop(events, swept, note, options)).dropped_s:
            return _reason_after_drop(note, ages_s, tables, options)
        if note.kind is Kind.FORMER_PRIMARY and primary == swept.name and note.is_of(table):
            return f"{swept.name} is the primary of {name}, so its files may be in use"
        return reason_to_leave(note, table, ages_s.get(note.kind, 0.0), options)

    unnamed = [item for item in notes if canonical(item.directory) not in in_use]
    # A drop that ended just before the lock was taken has taken these notes anew, or removed them.
    again = [note_of(swept, item.kind, item.directory, options) for item in unnamed]
    judged = [(item, reason_to_keep(item)) for item in again if item is not None]
    return (
        [item for item, reason in judged if not reason],
        {item.directory: reason for item, reason in judged if reason},
        len(notes) - len(unnamed),
    )


def _of_no_table(
    client: MetastoreClient,
    swept: Cluster,
    name: str,
    notes: Iterable[Note],
    *,
    ages_s: Mapping[Kind, float],
    tables: PresentTables,
    options: StorageOptions | None,
) -> tuple[list[Note], dict[str, str]]:
    """Return the notes of directories whose table was dropped, and the directories to leave, with reasons."""
    unused: list[Note] = []
    left: dict[str, str] = {}
    events = drop_events(client, name)
    for seen in notes:
        # A drop of the copy that ended just before the lock was taken may have removed the note.
        if (present := note_of(swept, seen.kind, seen.directory, options)) is None:
            continue
        note = with_drop(events, swept, present, options)
        if not note.dropped_s:
            left[note.directory] = (
                f"there is no table {name}; if it was renamed, drop or copy it again, or set its primary "
                "again, under its present name, and if it was dropped, remove the directory and its note "
                f"{uri_of_note(swept, note)}"
            )
        elif reason := _reason_after_drop(note, ages_s, tables, options):
            left[note.directory] = reason
        else:
            unused.append(note)
    return unused, left


def _reason_after_drop(
    note: Note, ages_s: Mapping[Kind, float], tables: PresentTables, options: StorageOptions | None
) -> str:
    """Return the reason to leave a directory whose table was dropped; empty if there is none."""
    if note.kind is Kind.PLAN:
        return ""
    if max(note.taken_s, note.dropped_s) > time.time() - ages_s.get(note.kind, 0.0):
        return _MAY_READ
    if user := tables.at(note.directory, split_name(note.table)[0]):
        return f"{note.table} was dropped, and the table {user} uses the directory"
    if name := tables.named(note):
        return (
            f"{note.table} was dropped, and is back as {name}, which may use it; drop or copy that one again"
        )
    reason = lacks_primary(note, options)
    return (
        f"{note.table} was dropped, and {reason}; if nobody needs the directory, remove it and its note"
        if reason
        else ""
    )


def _settle_marks(
    swept: Cluster,
    table: types.Table,
    objects: Sequence[types.Table | types.Partition],
    notes: Iterable[Note],
    *,
    renew: Callable[[], None],
    options: StorageOptions | None,
) -> None:
    """Settle the notes of the table that a killed change of the primary has marked, or the event of a drop.

    The directory of a primary loses its note. That of a copy loses the mark, unless the change continues. A
    table with the time of a drop is back, by a backup: once it was renamed, it would count as dropped.

    :param notes: the notes as they were before the lock was taken.
    :param renew: proves the lock, without which a later change may mark the notes again.
    """
    primaries = {canonical(item.sd.location) for item in objects if item.sd and item.sd.location}
    in_use = named_directories(table, objects)
    continues = read_metadata(table.parameters, object_name(table)).next_primary is not None
    for seen in notes:
        if not (seen.becomes_primary or seen.dropped_s):
            continue
        # The change may have ended between the reading of the notes and the lock.
        note = note_of(swept, seen.kind, seen.directory, options)
        if note is None or not (note.becomes_primary or note.dropped_s) or not note.is_of(table):
            continue
        renew()
        if note.dropped_s:
            note = replace(note, dropped_s=0.0, only_beside_primary=False)
            take_note(swept, note, options)
        if not note.becomes_primary:
            continue
        directory = canonical(note.directory)
        if directory in primaries:
            forget(swept, note.kind, note.directory, options)
        elif directory in in_use and not continues:
            take_note(swept, replace(note, becomes_primary=False), options)


def _count(number: int, noun: str, plural: str) -> str:
    return f"{number} {noun if number == 1 else plural}"


def _directories(notes: Iterable[Note]) -> list[str]:
    return [item.directory for item in notes]


def _remove(cluster: Cluster, notes: Iterable[Note], options: StorageOptions | None) -> list[str]:
    return [item.directory for item in notes if remove_noted(cluster, item, options)]


def _table_of(note: Note) -> str:
    return note.table

"""Removes the files of a table's former primaries, and reports files that others have written to them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial

from airflow_hive_federation.clusters.altering import full_name, partitions_by_name, split_name
from airflow_hive_federation.clusters.copies.directories import home_of
from airflow_hive_federation.clusters.notes import (
    Kind,
    Note,
    foreign_files,
    forget,
    noted,
    notes_of,
    read_notes,
    remove_noted,
)
from airflow_hive_federation.clusters.registry import Cluster, ClusterRegistry
from airflow_hive_federation.clusters.sweeping import named_directories, reason_to_leave
from airflow_hive_federation.errors import NoSuchObjectError, PrimaryRefusedError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.filesystem import canonical, is_below
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.storage.options import StorageOptions


def remove_former_primaries(
    client: MetastoreClient,
    registry: ClusterRegistry,
    name: str,
    place: Cluster,
    older_than_s: float,
    *,
    options: StorageOptions | None,
) -> tuple[list[str], dict[str, str]]:
    """Remove the files of a table's former primaries that no metadata names, by their notes.

    :param name: ``database.table``.
    :param place: the table's present primary cluster.
    :param older_than_s: the age in seconds of a change below which its former primaries are left.
    :return: the removed directories, and the directories that were left, with the reasons.
    :raises PrimaryRefusedError: others have written files to a former primary.
    """
    table = client.get_table(*split_name(name))
    objects = _objects(client, table)
    in_use = named_directories(table, objects)
    locations = [str(item.sd and item.sd.location) for item in objects]
    # A change that was killed after its last move has left the notes of the copies that it moved to.
    forget_primaries(place, locations, options)
    primaries = {canonical(location) for location in locations}
    named_by = cache(partial(_named_by, client))
    removed: list[str] = []
    left: dict[str, str] = {}
    for cluster in registry:
        for note in notes_of(cluster, options, kind=Kind.FORMER_PRIMARY) if cluster != place else ():
            directory = canonical(note.directory)
            is_ours = note.is_of(table)
            if directory in primaries or not (is_ours or note.table == name):
                continue
            if note.table != name and directory in named_by(note.table):
                left[note.directory] = f"another table, which has the former name {note.table}, uses it"
                continue
            if is_ours:
                _report_foreign(note, place, options)
            if directory in in_use:
                continue
            if reason := reason_to_leave(note, table, older_than_s, options):
                left[note.directory] = reason
            elif remove_noted(cluster, note, options):
                removed.append(note.directory)
    return removed, left


def _objects(client: MetastoreClient, table: types.Table) -> list[types.Table | types.Partition]:
    """Return the table and its partitions."""
    return [table, *(partitions_by_name(client, table).values() if table.partitionKeys else ())]


def _named_by(client: MetastoreClient, name: str) -> frozenset[str]:
    """Return the directories that the metadata of a table names; none if there is no such table.

    :param name: ``database.table``.
    """
    try:
        table = client.get_table(*split_name(name))
    except NoSuchObjectError:
        return frozenset()
    return named_directories(table, _objects(client, table))


def former_directories(
    cluster: Cluster,
    table: types.Table,
    objects: Iterable[types.Table | types.Partition],
    options: StorageOptions | None,
) -> list[Note]:
    """Return the notes of a table's former primaries that hold files and that no metadata names.

    Directories of the time before the table was renamed count only below the directory where it will have its
    partitions: no others can hide rows there, and another table may use its former name's.

    :raises StorageError: a note cannot be read, or a directory cannot be listed.
    """
    in_use = named_directories(table, objects)
    home = home_of(cluster, table)
    return [
        note
        for note in notes_of(cluster, options, kind=Kind.FORMER_PRIMARY)
        if note.is_of(table)
        and canonical(note.directory) not in in_use
        and (note.table == full_name(table) or is_below(note.directory, home))
        and list_files(note.directory, options=options, missing_ok=True)
    ]


def remedy_for_former(notes: Iterable[Note], table: types.Table, cluster: Cluster, primary: str) -> str:
    """Return the command that removes the files of a table's former primaries, as a remedy.

    :param cluster: the cluster of the notes.
    :param primary: the table's present primary cluster.
    """
    name = full_name(table)
    for note in notes:
        if note.table != name:
            return (
                f"Run `hive-federation cluster set-primary {name} {primary}` a day after that time: a sweep "
                f"leaves these files, because the table was named {note.table} then."
            )
    return (
        f"Run `hive-federation cluster sweep {cluster.name}` a day after that time, or with "
        "`--former-days 0` when no statements read them."
    )


def forget_primaries(cluster: Cluster, locations: Iterable[str], options: StorageOptions | None) -> None:
    """Forget the notes of directories that have become those of a primary otherwise than by a change of it.

    Somebody may have set a table's location to its copy. A sweep would remove the files of an external
    partition that is dropped later, which Hive leaves where they lie.

    :raises StorageError: a note cannot be removed.
    """
    places = list(locations)
    for kind in (Kind.COPY, Kind.FORMER_PRIMARY):
        has_note = noted(cluster, kind, options)
        for place in filter(has_note, places):
            forget(cluster, kind, place, options)


def forget_dropped_partitions(
    client: MetastoreClient,
    table: types.Table,
    former: Cluster,
    place: Cluster,
    options: StorageOptions | None,
) -> dict[str, str]:
    """Forget the notes of partitions that a user has dropped during a change of the primary.

    Hive has left the files of an external partition where it lay: before it moved, in the former cluster, and
    after that, in the directory of its copy, whose note is still marked. A later partition of its name has
    another time of creation.

    :param former: the cluster that the table leaves.
    :param place: the cluster that becomes the primary; all partitions that exist have moved there.
    :return: the directories of these partitions, with the reason why they are left.
    :raises StorageError: a note cannot be read or removed.
    """
    partitions = partitions_by_name(client, table)
    present = {name: item.createTime or 0 for name, item in partitions.items()}
    kept: dict[str, str] = {}
    for note in notes_of(former, options, kind=Kind.FORMER_PRIMARY):
        dropped = note.partition and present.get(note.partition) != note.partition_created_s
        if dropped and note.is_of(table):
            forget(former, Kind.FORMER_PRIMARY, note.directory, options)
            kept[note.directory] = f"its partition {note.partition} was dropped during the change"
    in_use = named_directories(table, [table, *partitions.values()])
    # Damaged notes, perhaps of other tables, let nothing be removed, and must not stop the change here.
    for note in read_notes(place, options)[0]:
        if note.becomes_primary and note.is_of(table) and canonical(note.directory) not in in_use:
            forget(place, note.kind, note.directory, options)
            kept[note.directory] = (
                "it is the copy of a partition that was dropped during the change, perhaps after the "
                "copy had become the partition's directory"
            )
    return kept


def _report_foreign(note: Note, place: Cluster, options: StorageOptions | None) -> None:
    """Report files that others have written to a former primary, where no reader of the table finds them."""
    if files := foreign_files(note, options):
        raise PrimaryRefusedError(
            f"The primary of {note.table} is {place.name} now, but others have written files to its former "
            f"location {note.directory}: {', '.join(files[:5])}{', ...' if files[5:] else ''}.",
            remedy="Stop the writer. Repeat its write, or move these files into the present location; then "
            "remove them from the former one, and run this again.",
            table=note.table,
            partition=None,
            cluster=place.name,
        )

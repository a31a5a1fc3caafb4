"""Removes the directories that killed runs have left in a cluster, by the notes that were taken of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

from airflow_hive_federation.clusters.altering import object_name, partitions_by_name
from airflow_hive_federation.clusters.locking import alone_with_copies
from airflow_hive_federation.clusters.metadata import read_metadata
from airflow_hive_federation.clusters.notes import Note, notes_of, remove_noted
from airflow_hive_federation.clusters.registry import Cluster, ClusterRegistry
from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.filesystem import canonical

_WEEK_S = 7 * 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class SweepReport:
    """The result of a sweep.

    :param cluster: the cluster that was swept.
    :param removed: directories that were removed.
    :param used: number of directories that metadata names.
    :param left: directories that were left, with the reason.
    """

    cluster: str
    removed: list[str] = field(default_factory=list)
    used: int = 0
    left: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def sweep_cluster(
    client: MetastoreClient,
    registry: ClusterRegistry,
    cluster: str,
    *,
    statements_older_than_s: float = _WEEK_S,
    options: Mapping[str, Any] | None = None,
) -> SweepReport:
    """Remove the directories in a cluster that a note names, and that no metadata names.

    Tables of which a copy is being made are left for the next time, and so are those that are gone, which may
    have been renamed.

    :param cluster: its name.
    :param statements_older_than_s: leave statements that were written less than so many seconds ago.
    :raises UnknownClusterError: there is no such cluster.
    :raises StorageError: a note cannot be read, or a directory not be removed.
    :raises ClusterMetadataError: cluster metadata of a table is damaged; none of its directories is removed.
    """
    place = registry.cluster(cluster)
    removed: list[str] = []
    left: dict[str, str] = {}
    used = 0
    for table, some in groupby(sorted(notes_of(place, options), key=_table_of), key=_table_of):
        notes = list(some)
        if table:
            with alone_with_copies(client, table) as idle:
                named = _named(client, table) if idle else None
                why = "the table is gone, or has another name" if idle else "a copy of it is being made"
                unused = [] if named is None else [one for one in notes if not _is_named(one, named)]
                removed += _remove(place, unused, options)
                if named is None:
                    left.update({one.directory: why for one in notes})
                else:
                    used += len(notes) - len(unused)
        else:
            old = [one for one in notes if one.taken_s < time.time() - statements_older_than_s]
            removed += _remove(place, old, options)
            left.update({one.directory: "it is too young" for one in notes if one not in old})
    return SweepReport(cluster=place.name, removed=removed, used=used, left=left)


def named_directories(table: types.Table, objects: Iterable[types.Table | types.Partition]) -> frozenset[str]:
    """The directories that metadata names: of primaries, of copies, and of the copies before these.

    :raises ClusterMetadataError: cluster metadata is damaged.
    """
    found: set[str] = set()
    for one in objects:
        what = object_name(table, one if isinstance(one, types.Partition) else None)
        copies = read_metadata(one.parameters, what).secondaries.values()
        places = [
            one.sd and one.sd.location,
            *(place for copy in copies for place in (copy.location, copy.former)),
        ]
        found.update(canonical(place) for place in places if place)
    return frozenset(found)


def _named(client: MetastoreClient, name: str) -> frozenset[str] | None:
    """The directories of a table and of its partitions; ``None`` if there is no such table."""
    database, _, table_name = name.partition(".")
    try:
        table = client.get_table(database, table_name)
    except NoSuchObjectError:
        return None
    partitions = partitions_by_name(client, table).values() if table.partitionKeys else ()
    return named_directories(table, [table, *partitions])


def _is_named(note: Note, named: frozenset[str]) -> bool:
    return canonical(note.directory) in named


def _remove(cluster: Cluster, notes: Iterable[Note], options: Mapping[str, Any] | None) -> list[str]:
    return [one.directory for one in notes if remove_noted(cluster, one, options)]


def _table_of(note: Note) -> str:
    return note.table

"""Names the directories of copies, and removes those that metadata no longer names."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from airflow_hive_federation.clusters.altering import full_name
from airflow_hive_federation.clusters.notes import COPY, Kind, foreign_files, forget, note_of, remove_noted
from airflow_hive_federation.clusters.registry import Cluster
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.filesystem import (
    canonical,
    is_below,
    join,
    open_filesystem,
    storage_errors,
)

log = logging.getLogger(__name__)


def home_of(cluster: Cluster, table: types.Table) -> str:
    """Return the URI of a cluster's directory for the copies of a table."""
    return join(cluster.root, f"{table.dbName}.db", str(table.tableName))


def remove_unnamed(
    uris: Iterable[str],
    cluster: Cluster,
    table: types.Table,
    *,
    primaries: Collection[str],
    options: Mapping[str, Any] | None,
) -> list[str]:
    """Remove directories that metadata has named as copies; return those that were removed.

    It leaves directories of primaries: to read the table while the primary's site is down, somebody may have
    set its location to the copy.

    :param primaries: the present locations of the table, or of the partitions that had the copies.
    :raises StorageError: a directory cannot be removed.
    """
    in_use = {canonical(uri) for uri in primaries}
    removed = []
    for uri in uris:
        if canonical(uri) in in_use:
            log.warning("%s is left, because it is the location of the primary", uri)
            for kind in (Kind.COPY, Kind.FORMER_PRIMARY):
                forget(cluster, kind, uri, options)
        elif _remove(uri, cluster, table, options):
            removed.append(uri)
    return removed


def _remove(uri: str, cluster: Cluster, table: types.Table, options: Mapping[str, Any] | None) -> bool:
    """Remove the directory of a copy or of a former primary, by its note."""
    former = note_of(cluster, Kind.FORMER_PRIMARY, uri, options)
    if former is not None and former.is_of_namer(table):
        if others := foreign_files(former, options):
            log.warning("%s is left, because others have written files there: %s", uri, ", ".join(others[:5]))
            return False
        return remove_noted(cluster, former, options)
    copy = note_of(cluster, Kind.COPY, uri, options)
    if copy is None or not copy.is_of_namer(table):
        log.warning("%s is left, because it has no note of a copy of %s", uri, full_name(table))
        return False
    removed = remove_copy_directory(uri, home_of(cluster, table), options)
    if removed:
        forget(cluster, Kind.COPY, uri, options)
    return removed


def remove_copy_directory(uri: str, home: str, options: Mapping[str, Any] | None = None) -> bool:
    """Remove the directory of a copy that no metadata names any more; return whether it existed.

    A directory outside ``home``, or one whose name is not that of a copy, stays, because every user who may
    alter a table may write its parameters.

    :param home: the cluster's directory for the copies of the table.
    :raises StorageError: the directory cannot be removed.
    """
    name = uri.rstrip("/").rpartition("/")[2]
    if not name.startswith(COPY) or not is_below(uri, home):
        return False
    filesystem, path = open_filesystem(uri, options)
    with storage_errors(uri):
        if not filesystem.exists(path):
            return False
        filesystem.rm(path, recursive=True)
    return True

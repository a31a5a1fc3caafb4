"""Moves the copies of a table from one secondary cluster to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_hive_federation.clusters.altering import full_name, requested_table
from airflow_hive_federation.clusters.copies.copying import RunCopy, copy_to_cluster, drop_copies
from airflow_hive_federation.clusters.copies.objects import chosen_partitions
from airflow_hive_federation.clusters.metadata import read_metadata
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.errors import CopyRefusedError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.storage.options import StorageOptions


@dataclass(frozen=True, kw_only=True)
class MoveReport:
    """The result of a move of copies.

    :param table: ``database.table``.
    :param moved: the objects (the table, or partitions by name) whose copy is now in the new cluster only.
    :param files: the number of copied files; copies that existed in the new cluster are not counted.
    :param size_bytes: the size of these files.
    :param removed: the removed directories.
    :param left: the directories of dropped copies that are left to a sweep, because statements may read them.
    """

    table: str
    from_cluster: str
    to_cluster: str
    moved: list[str] = field(default_factory=list)
    files: int = 0
    size_bytes: int = 0
    removed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def move_copies(
    client: MetastoreClient,
    registry: ClusterRegistry,
    table: str,
    from_cluster: str,
    to_cluster: str,
    *,
    run_copy: RunCopy,
    partitions: Sequence[str] | None = None,
    where: str | None = None,
    at_once: bool = False,
    options: StorageOptions | None = None,
) -> MoveReport:
    """Copy the objects with copies in one cluster to another, then drop their copies in the first one.

    The new copies are made from the primary, so that stale ones become fresh. The next run finishes an
    interrupted one.

    :param table: ``database.table``.
    :param run_copy: executes the copy plan.
    :param partitions: see :func:`.copying.copy_to_cluster`; partitions without a copy are skipped.
    :param where: see :func:`.copying.copy_to_cluster`.
    :param at_once: see :func:`.copying.drop_copies`.
    :param options: the storage options of all clusters.
    :raises CopyRefusedError: the clusters are the same, one is the primary, or the table cannot be copied.
    :raises CopySourceChangedError: the primary changed during the copy; no copy was dropped.
    :raises UnknownClusterError: a cluster does not exist.
    :raises NoSuchObjectError: the table does not exist.
    :raises StorageError: files cannot be listed, read, written or removed.
    """
    origin, target = registry.cluster(from_cluster), registry.cluster(to_cluster)
    described = requested_table(client, table)
    name = full_name(described)
    primary = read_metadata(described.parameters, name).primary or registry.default_cluster().name
    if origin == target or origin.name == primary:
        raise CopyRefusedError(
            f"Copies of {name} cannot be moved from {origin.name} to {target.name}: "
            + ("they are the same." if origin == target else f"{origin.name} is its primary cluster."),
            remedy="Choose another cluster; `cluster set-primary` changes the primary.",
            table=name,
            partition=None,
            cluster=origin.name,
        )
    parts = chosen_partitions(client, described, partitions, where)
    objects: Mapping[str, Any] = parts if described.partitionKeys else {"": described}
    names = [
        key
        for key, item in objects.items()
        if origin.name in read_metadata(item.parameters, f"{name}/{key}".rstrip("/")).secondaries
    ]
    report = MoveReport(table=name, from_cluster=origin.name, to_cluster=target.name)
    if not names:
        return report
    chosen = names if described.partitionKeys else None
    copied = copy_to_cluster(
        client, registry, name, target.name, run_copy, partitions=chosen, at_once=at_once, options=options
    )
    dropped = drop_copies(
        client, registry, name, origin.name, partitions=chosen, at_once=at_once, options=options
    )
    return MoveReport(
        table=name,
        from_cluster=origin.name,
        to_cluster=target.name,
        moved=sorted([*copied.copied, *copied.current]),
        files=copied.files,
        size_bytes=copied.size_bytes,
        removed=[*copied.removed, *dropped.removed],
        left=[*copied.left, *dropped.left],
    )

"""Moves the copies of a table from one secondary cluster to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_hive_federation.clusters.altering import full_name
from airflow_hive_federation.clusters.copies.copying import RunCopy, copy_to_cluster, drop_copies
from airflow_hive_federation.clusters.copies.objects import chosen_partitions, split_name
from airflow_hive_federation.clusters.metadata import read_metadata
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.errors import CopyRefusedError
from airflow_hive_federation.metastore import MetastoreClient


@dataclass(frozen=True, kw_only=True)
class MoveReport:
    """The result of a move of copies.

    :param table: ``database.table``.
    :param moved: objects (the table, or partitions by name) that have a copy there, and none here any more.
    :param files: files that were copied; those of copies that were there already are not.
    :param size_bytes: their size.
    :param removed: directories that were removed.
    """

    table: str
    from_cluster: str
    to_cluster: str
    moved: list[str] = field(default_factory=list)
    files: int = 0
    size_bytes: int = 0
    removed: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


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
    options: Mapping[str, Any] | None = None,
) -> MoveReport:
    """Copy what has copies in one cluster to another, and drop these copies when the others are published.

    The copies are made of the primary, so that stale ones become fresh. A run that was interrupted is ended
    by the next one.

    :param table: ``database.table``.
    :param run_copy: carries out the copy plan.
    :param partitions: see :func:`.copying.copy_to_cluster`; those without a copy are passed over.
    :param where: see :func:`.copying.copy_to_cluster`.
    :param options: storage options of all clusters.
    :raises CopyRefusedError: the clusters are the same, one is the primary, or the table cannot be copied.
    :raises CopySourceChangedError: the primary changed meanwhile; no copy was dropped.
    :raises UnknownClusterError: there is no such cluster.
    :raises StorageError: files cannot be listed, read, written or removed.
    """
    here, there = registry.cluster(from_cluster), registry.cluster(to_cluster)
    described = client.get_table(*split_name(table))
    name = full_name(described)
    primary = read_metadata(described.parameters, name).primary or registry.default_cluster().name
    if here == there or here.name == primary:
        raise CopyRefusedError(
            f"Copies of {name} cannot be moved from {here.name} to {there.name}: "
            + ("they are the same." if here == there else f"{here.name} is its primary cluster."),
            remedy="Choose another cluster; `cluster set-primary` changes the primary.",
            table=name,
            partition=None,
            cluster=here.name,
        )
    parts = chosen_partitions(client, described, partitions, where)
    objects: Mapping[str, Any] = parts if described.partitionKeys else {"": described}
    names = [
        key
        for key, item in objects.items()
        if here.name in read_metadata(item.parameters, f"{name}/{key}".rstrip("/")).secondaries
    ]
    report = MoveReport(table=name, from_cluster=here.name, to_cluster=there.name)
    if not names:
        return report
    chosen = names if described.partitionKeys else None
    copied = copy_to_cluster(client, registry, name, there.name, run_copy, partitions=chosen, options=options)
    dropped = drop_copies(client, registry, name, here.name, partitions=chosen, options=options)
    return MoveReport(
        table=name,
        from_cluster=here.name,
        to_cluster=there.name,
        moved=sorted([*copied.copied, *copied.current]),
        files=copied.files,
        size_bytes=copied.size_bytes,
        removed=dropped.removed,
    )

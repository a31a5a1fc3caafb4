"""Partitions of one remote table brought to what they are at the remote."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from airflow_hive_federation.catalog.roles import PartitionStatistics
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.calls.base import ENGINE
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import partition_name
from airflow_hive_federation.remotes import definitions
from airflow_hive_federation.remotes.changes import TableChange
from airflow_hive_federation.remotes.ends import KEEP_STATISTICS, Ends, names_of
from airflow_hive_federation.remotes.links import Link


def refresh(ends: Ends, link: Link, remote: Any, names: Sequence[str] | None) -> tuple[int, int, int]:
    """Compare partitions and apply what differs.

    :param remote: wire ``Table`` of the remote.
    :param names: which partitions; ``None`` means all.
    :return: how many were added, altered and dropped.
    """
    if names is not None and not names:
        return 0, 0, 0
    wanted = _by_name(remote, at_the_remote(ends, link, remote, names))
    with ends.local.client() as client:
        present = _by_name(remote, client.iter_partitions(*names_of(link.local), names=names))
        added = [one for name, one in wanted.items() if name not in present]
        altered = [
            one
            for name, one in wanted.items()
            if name in present and not definitions.same_partition(one, present[name])
        ]
        dropped = sorted(present.keys() - wanted.keys())
        write(client, link, added=added, altered=altered)
        client.drop_partitions(*names_of(link.local), dropped, delete_data=False)
    return len(added), len(altered), len(dropped)


def at_the_remote(ends: Ends, link: Link, remote: Any, names: Sequence[str] | None) -> list[Any]:
    """The remote's partitions as the local table gets them, column statistics on them.

    :param remote: wire ``Table`` of the remote.
    :param names: which partitions; ``None`` means all.
    """
    if not remote.partitionKeys:
        return []
    acid = definitions.is_acid(remote)
    database, table = names_of(link.local)
    with ends.breaker.guard():
        found: list[Any] = list(ends.remote.get_partitions(*names_of(link.remote), names))
        described = [one for one in found if not acid and definitions.has_column_statistics(one)]
        statistics: dict[str, list[types.ColumnStatisticsObj]] = {}
        if described and isinstance(ends.remote, PartitionStatistics):
            statistics = ends.remote.partition_statistics(
                *names_of(link.remote), sorted(_by_name(remote, described))
            )
    made = {
        name: definitions.local_partition(one, database=database, name=table, acid=acid)
        for name, one in _by_name(remote, found).items()
    }
    for name in statistics.keys() & made.keys():
        made[name].colStats = types.ColumnStatistics(
            statsDesc=types.ColumnStatisticsDesc(
                isTblLevel=False, dbName=database, tableName=table, partName=name
            ),
            statsObj=statistics[name],
            engine=ENGINE,
        )
    return list(made.values())


def write(client: MetastoreClient, link: Link, *, added: Sequence[Any], altered: Sequence[Any] = ()) -> None:
    """Write partitions, then their column statistics: riding on a partition they would cost a call each."""
    statistics = []
    for one in (*added, *altered):
        if one.colStats is not None:
            statistics.append(one.colStats)
            one.colStats = None
    client.add_partitions(added, environment=KEEP_STATISTICS)
    client.alter_partitions(*names_of(link.local), altered, environment=KEEP_STATISTICS)
    client.set_column_statistics(statistics)


def changed_names(ends: Ends, link: Link, remote: Any, change: TableChange) -> list[str]:
    """Names of the partitions that a change says to look at.

    :param remote: wire ``Table`` of the remote.
    """
    names = set(change.partition_names([key.name or "" for key in remote.partitionKeys]))
    if change.partition_names_too:
        with ends.breaker.guard():
            there = ends.remote.list_partition_names(*names_of(link.remote))
        with ends.local.client() as client:
            names |= set(there) ^ set(client.list_partition_names(*names_of(link.local)))
    return sorted(names)


def _by_name(remote: Any, partitions: Iterable[Any]) -> dict[str, Any]:
    keys = [key.name or "" for key in remote.partitionKeys]
    return {partition_name(keys, one.values): one for one in partitions}

"""Brings the partitions of one link up to date with the remote table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest

from airflow_hive_federation.catalog.roles import PartitionStatistics
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.calls.partition_pages import pages
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import partition_name
from airflow_hive_federation.remotes import definitions
from airflow_hive_federation.remotes.changes import TableChange
from airflow_hive_federation.remotes.ends import KEEP_STATISTICS, Ends, names_of
from airflow_hive_federation.remotes.links import STATISTICS, Link, refuse_location

#: Limits the partitions per batch: each takes about 10 kB of memory on either side.
PARTITIONS_PER_BATCH = 5_000


def refresh(ends: Ends, link: Link, remote: types.Table, names: Sequence[str] | None) -> tuple[int, int, int]:
    """Compare partitions and apply the differences, batch by batch.

    :param names: names of the partitions to compare; ``None`` means all.
    :return: numbers of added, altered and dropped partitions.
    """
    counts = (0, 0, 0)
    if names is None:
        with ends.local.client() as client:
            local_names = client.list_partition_names(*names_of(link.local))
        parts = _all_in_batches(remote, {*local_names, *_names_at_the_remote(ends, link)})
    else:
        parts = _in_batches(remote, names)
    for batch, partitions in _read_ahead(ends, link, remote, parts):
        added, altered, dropped = _bring(ends, link, remote, batch, partitions)
        counts = (counts[0] + added, counts[1] + altered, counts[2] + dropped)
    return counts


def at_the_remote(ends: Ends, link: Link, remote: types.Table) -> Iterator[list[types.Partition]]:
    """Yield all partitions of the remote as the local table gets them, in batches."""
    if remote.partitionKeys:
        parts = _all_in_batches(remote, _names_at_the_remote(ends, link))
        for _, partitions in _read_ahead(ends, link, remote, parts):
            yield partitions


def _names_at_the_remote(ends: Ends, link: Link) -> list[str]:
    with ends.breaker.guard():
        return ends.remote.list_partition_names(*names_of(link.remote))


def _all_in_batches(remote: types.Table, names: Collection[str]) -> list[list[str] | None]:
    """Divide the names of all partitions into batches; ``None`` is one batch of all."""
    few = len(names) <= PARTITIONS_PER_BATCH
    return [None] if names and few else _in_batches(remote, names)


def _in_batches(remote: types.Table, names: Collection[str]) -> list[list[str] | None]:
    """Divide names into batches that a metastore finds by a range of a partition key."""
    keys = [(key.name or "", key.type or "") for key in remote.partitionKeys]
    return [list(page.names) for page in pages(keys, sorted(names), PARTITIONS_PER_BATCH)]


def _read_ahead(
    ends: Ends, link: Link, remote: types.Table, parts: Sequence[list[str] | None]
) -> Iterator[tuple[list[str] | None, list[types.Partition]]]:
    """Read batches from the remote, each while the caller writes the batch before it."""
    if len(parts) <= 1:
        yield from ((batch, _made(ends, link, remote, batch)) for batch in parts)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="remote-partitions") as thread:
        coming = thread.submit(_made, ends, link, remote, parts[0])
        for batch, following in zip_longest(parts, parts[1:]):
            partitions = coming.result()
            if following is not None:
                coming = thread.submit(_made, ends, link, remote, following)
            yield batch, partitions


def _bring(
    ends: Ends,
    link: Link,
    remote: types.Table,
    names: Sequence[str] | None,
    partitions: Sequence[types.Partition],
) -> tuple[int, int, int]:
    """Bring the local partitions of these names up to date with those of the remote."""
    wanted = _by_name(remote, partitions)
    present = _by_name(remote, ends.local.get_partitions(*names_of(link.local), names))
    unlisted = sorted(present.keys() - wanted.keys())
    if names is None and unlisted:
        # A list is no evidence that a partition was dropped: the remote is asked for it by its name.
        wanted |= _by_name(remote, _made(ends, link, remote, unlisted))
    added = [partition for name, partition in wanted.items() if name not in present]
    altered = [
        partition
        for name, partition in wanted.items()
        if name in present and not definitions.same_partition(partition, present[name])
    ]
    for name, partition in wanted.items():
        if name in present:
            partition.sd.location = partition.sd.location or present[name].sd.location
    dropped = sorted(present.keys() - wanted.keys())
    with ends.local.client() as client:
        write(client, link, added=added, altered=altered)
        client.drop_partitions(*names_of(link.local), dropped, delete_data=False)
    return len(added), len(altered), len(dropped)


def _made(ends: Ends, link: Link, remote: types.Table, names: Sequence[str] | None) -> list[types.Partition]:
    """Read the remote's partitions and return the local ones for them, with their column statistics."""
    acid = definitions.is_acid(remote)
    database, table = names_of(link.local)
    with ends.breaker.guard():
        partitions: list[types.Partition] = list(ends.remote.get_partitions(*names_of(link.remote), names))
        described = [
            partition for partition in partitions if not acid and definitions.has_column_statistics(partition)
        ]
        statistics: dict[str, list[types.ColumnStatisticsObj]] = {}
        if described and isinstance(ends.remote, PartitionStatistics):
            statistics = ends.remote.partition_statistics(
                *names_of(link.remote), sorted(_by_name(remote, described))
            )
    for partition in partitions:
        refuse_location(link, partition.sd.location)
    made = {
        name: definitions.local_partition(partition, database=database, name=table, acid=acid)
        for name, partition in _by_name(remote, partitions).items()
    }
    if not acid:
        for name, partition in made.items():
            # Without a location the metastore would place the partition below the local table's directory.
            partition.sd.location = partition.sd.location or f"{str(remote.sd.location).rstrip('/')}/{name}"
    for name in statistics.keys() & made.keys():
        partition = made[name]
        partition.colStats = definitions.partition_statistics(statistics[name], partition, name)
        # The metastore returns no statistics with partitions: by the digest, a refresh notices other ones.
        digest = definitions.statistics_digest(statistics[name])
        partition.parameters = {**(partition.parameters or {}), STATISTICS: digest}
    return list(made.values())


def write(
    client: MetastoreClient,
    link: Link,
    *,
    added: Sequence[types.Partition],
    altered: Sequence[types.Partition] = (),
) -> None:
    """Write partitions, then all column statistics, which would cost a call per partition if sent with it."""
    statistics = []
    for partition in (*added, *altered):
        if partition.colStats is not None:
            statistics.append(partition.colStats)
            partition.colStats = None
    client.add_partitions(added, environment=KEEP_STATISTICS)
    client.alter_partitions(*names_of(link.local), altered, environment=KEEP_STATISTICS)
    client.set_column_statistics(statistics)


def changed_names(ends: Ends, link: Link, remote: types.Table, change: TableChange) -> list[str]:
    """Return the names of the partitions that a change may have affected."""
    names = set(change.partition_names([key.name or "" for key in remote.partitionKeys]))
    if change.partition_names_too:
        remote_names = _names_at_the_remote(ends, link)
        with ends.local.client() as client:
            names |= set(remote_names) ^ set(client.list_partition_names(*names_of(link.local)))
    return sorted(names)


def _by_name(remote: types.Table, partitions: Iterable[types.Partition]) -> dict[str, types.Partition]:
    keys = [key.name or "" for key in remote.partitionKeys]
    return {partition_name(keys, partition.values): partition for partition in partitions}

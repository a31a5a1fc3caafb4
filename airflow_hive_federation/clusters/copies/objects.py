"""The tables and partitions that are copied to a cluster: those meant, those allowed, those not current."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from airflow_hive_federation.clusters.acid_snapshots import (
    acid_files,
    has_news,
    is_insert_only,
    shows_news,
)
from airflow_hive_federation.clusters.altering import full_name, object_name, partitions_by_name
from airflow_hive_federation.clusters.assignment import reason_to_skip
from airflow_hive_federation.clusters.metadata import (
    ClusterMetadata,
    Secondary,
    SourceMark,
    content_mark,
    metadata_mark,
    place_mark,
    read_metadata,
    source_mark,
    visible_files,
)
from airflow_hive_federation.clusters.registry import Cluster, ClusterRegistry
from airflow_hive_federation.errors import CopyRefusedError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.partitions import partition_name
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.storage.listing import list_many
from airflow_hive_federation.transactions.snapshots import Snapshot

#: Spark's data sources that read the files of a directory, and nothing else.
_PLAIN_SOURCES = frozenset({"", "hive", "parquet", "orc", "csv", "json", "text", "avro"})


@dataclass(frozen=True, kw_only=True)
class CopyObject:
    """An unpartitioned table or a partition (whose name is not empty), with what is to become of it.

    :param files: the files to copy.
    :param mark: the primary as it is now.
    :param write_ids: of a transactional table, those that the files are chosen by.
    :param news_for: of a transactional table, says whether a copy lacks rows that the primary has now.
    """

    partition: str
    described: types.Table | types.Partition
    metadata: ClusterMetadata
    files: list[FileEntry]
    mark: SourceMark
    write_ids: ValidWriteIds | None = None
    news_for: Callable[[ValidWriteIds], bool] | None = None

    @property
    def location(self) -> str:
        """URI of the primary's directory."""
        return str(self.described.sd and self.described.sd.location)

    def is_unchanged(self, described: types.Table | types.Partition) -> bool:
        """Return whether the metastore describes the primary's data as it did when the files were listed."""
        of = metadata_mark if self.write_ids is None else place_mark
        return of(described) == self.mark.metadata

    def has_current(self, copy: Secondary) -> bool:
        """Return whether a copy was made of the rows that the primary has now."""
        if self.news_for is None:
            return copy.snapshot is None and copy.source.listing == self.mark.listing
        return (
            copy.snapshot is not None
            and copy.source.metadata == self.mark.metadata
            and not self.news_for(copy.snapshot)
        )


def copyable(client: MetastoreClient, registry: ClusterRegistry, table: str, cluster: Cluster) -> types.Table:
    """Read a table that can be copied to a cluster.

    :param table: ``database.table``.
    :raises CopyRefusedError: it cannot be copied there.
    :raises NoSuchObjectError: there is no such table.
    """
    described = client.get_table(*split_name(table))
    name = full_name(described)
    primary = read_metadata(described.parameters, name).primary or registry.default_cluster().name
    if why := _reason_to_refuse(described, primary, cluster.name):
        raise CopyRefusedError(
            f"{name} cannot be copied to cluster {cluster.name}: {why[0]}.",
            remedy=why[1],
            table=name,
            partition=None,
            cluster=cluster.name,
        )
    return described


def _reason_to_refuse(table: types.Table, primary: str, cluster: str) -> tuple[str, str] | None:
    """The reason why a table cannot be copied there, and what to do instead; ``None`` if it can."""
    if primary == cluster:
        return f"{cluster} is its primary cluster", "Choose another cluster."
    if why := reason_to_skip(table):
        return why, "Copy the tables that hold the data."
    parameters = {key.lower(): value.lower() for key, value in (table.parameters or {}).items()}
    provider = parameters.get("spark.sql.sources.provider", "")
    reasons = {
        ("a storage handler keeps its data", "Copy it by the means of that store."): (
            "storage_handler" in parameters or parameters.get("table_type") == "iceberg"
        ),
        (
            f"its files are of {provider}, and may name each other",
            "Copy it by that format's means.",
        ): provider not in _PLAIN_SOURCES,
        ("its location is a placeholder of Spark's", "Give the table a location."): (
            str(table.sd and table.sd.location).endswith("-__PLACEHOLDER__")
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def chosen_partitions(
    client: MetastoreClient, table: types.Table, partitions: Sequence[str] | None, where: str | None
) -> dict[str, types.Partition]:
    """The partitions that are meant, by name; none of a table without partitions.

    :raises CopyRefusedError: the table has no partitions, or lacks one of them.
    """
    if not table.partitionKeys:
        if partitions is not None or where is not None:
            _refuse_partition(table, "", "it has no partitions")
        return {}
    if where is not None:
        keys = [key.name or "" for key in table.partitionKeys]
        found = client.find_partitions(table.dbName or "", table.tableName or "", where)
        by_name = {partition_name(keys, one.values or []): one for one in found}
        return {name: one for name, one in by_name.items() if partitions is None or name in partitions}
    chosen = partitions_by_name(client, table, partitions)
    for name in partitions or ():
        if name not in chosen:
            _refuse_partition(table, name, "there is no such partition")
    return chosen


def _refuse_partition(table: types.Table, partition: str, why: str) -> None:
    _refuse_object(table, partition, why, "Check the names of the partitions, as SHOW PARTITIONS has them.")


def _refuse_object(table: types.Table, partition: str, why: str, remedy: str) -> NoReturn:
    name = full_name(table)
    raise CopyRefusedError(
        f"{name}{'/' + partition if partition else ''} cannot be copied: {why}.",
        remedy=remedy,
        table=name,
        partition=partition or None,
        cluster=None,
    )


def copy_objects(
    table: types.Table,
    partitions: Mapping[str, types.Partition],
    options: Mapping[str, Any] | None,
    snapshot: Snapshot | None = None,
) -> list[CopyObject]:
    """List the files of a table, or of partitions, and read their cluster metadata.

    :param partitions: the partitions of a partitioned table, by name.
    :param snapshot: the rows to copy of a transactional table; ``None`` for others.
    :raises CopyRefusedError: files of a transactional table cannot be copied as they are.
    :raises AcidFormatError: directories of a transactional table break Hive's layout.
    :raises FileVanishedError: a directory is not there; its store may not be mounted.
    :raises ClusterMetadataError: cluster metadata is damaged.
    """
    described: Mapping[str, types.Table | types.Partition] = (
        partitions if table.partitionKeys else {"": table}
    )
    places = [str(one.sd and one.sd.location) for one in described.values()]
    # Hive makes the directory of a transactional partition with its first row.
    listings = list_many(
        places, options=options, missing_ok=snapshot is not None, empty_directories=snapshot is not None
    )
    objects = []
    for name, one in described.items():
        listing = listings[str(one.sd and one.sd.location)]
        what = object_name(table, one if isinstance(one, types.Partition) else None)
        metadata = read_metadata(one.parameters, what)
        files = visible_files(listing)
        made = CopyObject(
            partition=name, described=one, metadata=metadata, files=files, mark=source_mark(one, files)
        )
        objects.append(made if snapshot is None else _of_snapshot(table, made, listing, snapshot, options))
    return objects


def _of_snapshot(
    table: types.Table,
    one: CopyObject,
    listing: Sequence[FileEntry],
    snapshot: Snapshot,
    options: Mapping[str, Any] | None,
) -> CopyObject:
    """The object with the files of a snapshot."""
    seen = acid_files(one.location, listing, snapshot, insert_only=is_insert_only(table), options=options)
    if seen.problem:
        _refuse_object(table, one.partition, seen.problem, "Compact it, or wait for the writer.")
    now = snapshot.write_ids
    if one.partition:
        state = seen.state
        news_for: Callable[[ValidWriteIds], bool] = lambda copy: shows_news(copy, now, state)  # noqa: E731
    else:
        news_for = lambda copy: has_news(copy, now)  # noqa: E731
    mark = replace(source_mark(one.described, seen.files), metadata=place_mark(one.described))
    return replace(one, files=list(seen.files), mark=mark, write_ids=now, news_for=news_for)


def pending_objects(
    objects: Sequence[CopyObject], cluster: str, options: Mapping[str, Any] | None
) -> Iterator[CopyObject]:
    """The objects that have no copy there, or one that is not what the primary holds."""
    copies = (one.metadata.secondaries.get(cluster) for one in objects)
    places = [copy.location for copy in copies if copy is not None]
    there = list_many(places, options=options, missing_ok=True)
    for one in objects:
        copy = one.metadata.secondaries.get(cluster)
        if (
            copy is None
            or not one.has_current(copy)
            or content_mark(there[copy.location]) != copy.source.content
        ):
            yield one


def split_name(table: str) -> tuple[str, str]:
    """Divide ``database.table``.

    :raises CopyRefusedError: it is no such name.
    """
    database, dot, name = table.partition(".")
    if not dot or not name or "." in name:
        raise CopyRefusedError(
            f"{table!r} is no name of a table.", remedy="Write database.table.", table=table, partition=None
        )
    return database.lower(), name.lower()

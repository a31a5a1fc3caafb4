"""Selects the tables and partitions to copy to a cluster: those requested, allowed, and not current."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_hive_federation.clusters.acid_snapshots import (
    acid_files,
    is_insert_only,
    lacks_writes,
    may_lack_rows,
)
from airflow_hive_federation.clusters.altering import (
    full_name,
    object_name,
    partitions_by_name,
    requested_table,
)
from airflow_hive_federation.clusters.assignment import reason_to_stay
from airflow_hive_federation.clusters.metadata import (
    ClusterMetadata,
    Secondary,
    SourceMark,
    metadata_mark,
    place_mark,
    read_metadata,
    source_mark,
)
from airflow_hive_federation.clusters.registry import Cluster, ClusterRegistry
from airflow_hive_federation.errors import CopyRefusedError, MetastoreServerError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.content_marks import content_mark, visible_files
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.partitions import partition_name
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.runtime.arguments import texts
from airflow_hive_federation.storage.listing import list_many
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.transactions.snapshots import Snapshot

#: Spark's data sources that read only the files of a directory.
_PLAIN_SOURCES = frozenset({"", "hive", "parquet", "orc", "csv", "json", "text", "avro"})


@dataclass(frozen=True, kw_only=True)
class CopyObject:
    """An unpartitioned table, or a partition (with a nonempty name), and the state that its copy will have.

    :param files: the files to copy.
    :param mark: the mark of the present primary.
    :param write_ids: for a transactional table, the write ids by which the files were selected.
    :param growing: the paths of files that a streaming writer has open: only their listed length is copied.
    :param lacks_rows: for a transactional table, returns whether a copy lacks rows that the primary has now.
    """

    partition: str
    described: types.Table | types.Partition
    metadata: ClusterMetadata
    files: list[FileEntry]
    mark: SourceMark
    write_ids: ValidWriteIds | None = None
    growing: frozenset[str] = frozenset()
    lacks_rows: Callable[[ValidWriteIds], bool] | None = None

    @property
    def location(self) -> str:
        """The URI of the primary's directory."""
        return str(self.described.sd and self.described.sd.location)

    def is_unchanged(self, described: types.Table | types.Partition) -> bool:
        """Return whether the metastore describes the primary's data as at the time of the file listing."""
        of = metadata_mark if self.write_ids is None else place_mark
        return of(described) == self.mark.metadata

    def has_current(self, copy: Secondary) -> bool:
        """Return whether a copy has the rows that the primary has now."""
        if self.lacks_rows is None:
            return copy.snapshot is None and copy.source.listing == self.mark.listing
        if copy.source.files and not self.files:
            # Hive 3's TRUNCATE removes the files, and leaves no directory that shows its write id.
            return False
        return (
            copy.snapshot is not None
            and copy.source.metadata == self.mark.metadata
            and not self.lacks_rows(copy.snapshot)
        )


def copyable(client: MetastoreClient, registry: ClusterRegistry, table: str, cluster: Cluster) -> types.Table:
    """Return a table that can be copied to a cluster.

    :param table: ``database.table``.
    :raises CopyRefusedError: the table cannot be copied to that cluster.
    :raises NoSuchObjectError: the table does not exist.
    """
    described = requested_table(client, table)
    name = full_name(described)
    primary = read_metadata(described.parameters, name).primary or registry.default_cluster().name
    if refusal := _reason_to_refuse(described, primary, cluster.name):
        message = f"{name} cannot be copied to cluster {cluster.name}: {refusal[0]}."
        raise _refusal(described, message, refusal[1], cluster=cluster.name)
    return described


def _reason_to_refuse(table: types.Table, primary: str, cluster: str) -> tuple[str, str] | None:
    """Return the reason why a table cannot be copied, and the remedy; ``None`` if it can."""
    if primary == cluster:
        return f"{cluster} is its primary cluster", "Choose another cluster."
    if refusal := reason_to_stay(table):
        return refusal
    parameters = {key.lower(): value.lower() for key, value in (table.parameters or {}).items()}
    provider = parameters.get("spark.sql.sources.provider", "")
    reasons = {
        ("a storage handler stores its data", "Copy it with the tools of that store."): (
            "storage_handler" in parameters or parameters.get("table_type") == "iceberg"
        ),
        (
            f"its files are of {provider}, and may refer to each other",
            "Copy it with the tools of that format.",
        ): provider not in _PLAIN_SOURCES,
        ("its location is a placeholder of Spark's", "Give the table a location."): (
            str(table.sd and table.sd.location).endswith("-__PLACEHOLDER__")
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def chosen_partitions(
    client: MetastoreClient, table: types.Table, partitions: Sequence[str] | None, where: str | None
) -> dict[str, types.Partition]:
    """Return the requested partitions by name; an empty mapping for a table without partitions.

    :raises CopyRefusedError: the table has no partitions, or lacks one of them.
    :raises ConfigurationError: the partitions are no list of names.
    """
    named = None if partitions is None else frozenset(texts("partitions", partitions))
    if not table.partitionKeys:
        if partitions is not None or where is not None:
            remedy = "Name the table alone, without partitions and without a condition."
            raise _refusal(table, f"{full_name(table)} has no partitions.", remedy)
        return {}
    if where is not None:
        keys = [key.name or "" for key in table.partitionKeys]
        try:
            partitions_found = client.find_partitions(table.dbName or "", table.tableName or "", where)
        except MetastoreServerError as error:
            raise _refusal(
                table,
                f"The metastore cannot choose partitions of {full_name(table)} by the condition {where!r}: "
                f"{error.message}",
                f"Write a condition on the partition keys ({', '.join(keys)}), such as "
                f"{keys[0]} >= '2026-01-01'.",
            ) from error
        by_name = {partition_name(keys, partition.values or []): partition for partition in partitions_found}
        return {name: partition for name, partition in by_name.items() if named is None or name in named}
    chosen = partitions_by_name(client, table, partitions)
    for name in partitions or ():
        if name not in chosen:
            remedy = "Check the names of the partitions, as SHOW PARTITIONS has them."
            raise _refusal(table, f"{full_name(table)} has no partition {name}.", remedy, partition=name)
    return chosen


def _refusal(
    table: types.Table, message: str, remedy: str, *, partition: str | None = None, cluster: str | None = None
) -> CopyRefusedError:
    return CopyRefusedError(
        message, remedy=remedy, table=full_name(table), partition=partition, cluster=cluster
    )


def copy_objects(
    table: types.Table,
    partitions: Mapping[str, types.Partition],
    options: StorageOptions | None,
    snapshot: Snapshot | None = None,
) -> list[CopyObject]:
    """List the files of a table, or of partitions, and read their cluster metadata.

    :param partitions: the partitions of a partitioned table, by name.
    :param snapshot: the rows to copy of a transactional table; ``None`` for others.
    :raises CopyRefusedError: files of a transactional table cannot be copied as they are.
    :raises AcidFormatError: directories of a transactional table break Hive's layout.
    :raises FileVanishedError: a directory is missing; its store may not be mounted.
    :raises ClusterMetadataError: cluster metadata is damaged.
    """
    described: Mapping[str, types.Table | types.Partition] = (
        partitions if table.partitionKeys else {"": table}
    )
    locations = [str(item.sd and item.sd.location) for item in described.values()]
    # Hive creates the directory of a transactional partition with its first row.
    listings = list_many(
        locations, options=options, missing_ok=snapshot is not None, empty_directories=snapshot is not None
    )
    objects = []
    for name, item in described.items():
        listing = listings[str(item.sd and item.sd.location)]
        object_title = object_name(table, item if isinstance(item, types.Partition) else None)
        metadata = read_metadata(item.parameters, object_title)
        files = visible_files(listing)
        made = CopyObject(
            partition=name, described=item, metadata=metadata, files=files, mark=source_mark(item, files)
        )
        objects.append(made if snapshot is None else _of_snapshot(table, made, listing, snapshot, options))
    return objects


def _of_snapshot(
    table: types.Table,
    listed: CopyObject,
    listing: Sequence[FileEntry],
    snapshot: Snapshot,
    options: StorageOptions | None,
) -> CopyObject:
    """Return the object with the files of a snapshot."""
    selected = acid_files(
        listed.location, listing, snapshot, insert_only=is_insert_only(table), options=options
    )
    if selected.problem:
        name = f"{full_name(table)}/{listed.partition}".rstrip("/")
        raise _refusal(
            table,
            f"{name} cannot be copied: {selected.problem}.",
            "Compact it, or wait for the writer.",
            partition=listed.partition or None,
        )
    now = snapshot.write_ids
    if listed.partition:
        state = selected.state
        lacks_rows: Callable[[ValidWriteIds], bool] = lambda copy: may_lack_rows(copy, now, state)  # noqa: E731
    else:
        lacks_rows = lambda copy: lacks_writes(copy, now)  # noqa: E731
    mark = replace(source_mark(listed.described, selected.files), metadata=place_mark(listed.described))
    return replace(
        listed,
        files=list(selected.files),
        mark=mark,
        write_ids=now,
        growing=selected.growing,
        lacks_rows=lacks_rows,
    )


def pending_objects(
    objects: Sequence[CopyObject], cluster: str, options: StorageOptions | None
) -> Iterator[CopyObject]:
    """Return the objects that have no copy in a cluster, or a copy that differs from the primary."""
    copies = (item.metadata.secondaries.get(cluster) for item in objects)
    locations = [copy.location for copy in copies if copy is not None]
    listings = list_many(locations, options=options, missing_ok=True)
    for item in objects:
        copy = item.metadata.secondaries.get(cluster)
        if (
            copy is None
            or not item.has_current(copy)
            or content_mark(listings[copy.location]) != copy.source.content
        ):
            yield item

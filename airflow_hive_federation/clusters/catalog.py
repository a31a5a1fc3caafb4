"""The facts that routing decides by, read from a metastore in few calls."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow_hive_federation.acid.moments import take_snapshots
from airflow_hive_federation.clusters.acid_snapshots import is_current, is_transactional
from airflow_hive_federation.clusters.altering import full_name, object_name
from airflow_hive_federation.clusters.metadata import (
    ClusterMetadata,
    Secondary,
    content_mark,
    metadata_mark,
    read_metadata,
    source_mark,
)
from airflow_hive_federation.clusters.placement import (
    Clusters,
    Copy,
    PartitionFacts,
    Partitions,
    Placement,
    TableFacts,
)
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.storage.listing import list_many

_VIEWS = frozenset({"VIRTUAL_VIEW", "MATERIALIZED_VIEW"})
Name = tuple[str, str]
#: An object: database, table, values of a partition (none for a table), and the cluster of a copy.
CopyKey = tuple[str, str, tuple[str, ...], str]


def clusters_of(registry: ClusterRegistry) -> Clusters:
    """The names of a registry, as routing takes them.

    :raises UnknownClusterError: no cluster is configured.
    """
    return Clusters(
        names=tuple(registry.clusters),
        default=registry.default_cluster().name,
        use_default=registry.use_default,
    )


class MetastoreFacts:
    """The tables and partitions of a metastore; see :class:`.placement.CatalogFacts`.

    It keeps what it has read: make one for each statement, or few that belong together.

    A copy counts as fresh if the metastore knows of no write since it was made. :meth:`check_files` compares
    files too; what it finds stale stays so.

    :param client: the metastore.
    :param registry: copies in clusters that are not configured are left out.
    """

    def __init__(self, client: MetastoreClient, registry: ClusterRegistry) -> None:
        self._client = client
        self._registry = registry
        self._tables: dict[Name, types.Table | None] = {}
        self._facts: dict[Name, TableFacts] = {}
        self._partitions: dict[Name, list[types.Partition]] = {}
        self._partition_facts: dict[Name, Partitions] = {}
        self._stale: set[CopyKey] = set()
        self._write_ids: dict[Name, ValidWriteIds] = {}

    def prefetch(self, names: Iterable[Name]) -> None:
        """Read tables, a hundred a call; those that do not exist are remembered as such.

        :param names: databases and tables.
        """
        wanted: defaultdict[str, list[str]] = defaultdict(list)
        for database, name in names:
            if (database.lower(), name.lower()) not in self._tables:
                wanted[database.lower()].append(name.lower())
        for database, tables in wanted.items():
            found = {str(one.tableName).lower(): one for one in self._client.get_tables(database, tables)}
            self._tables.update({(database, name): found.get(name) for name in tables})

    def table(self, database: str, name: str) -> TableFacts | None:
        """See :meth:`.placement.CatalogFacts.table`.

        :raises ClusterMetadataError: its cluster metadata is damaged.
        """
        key = database.lower(), name.lower()
        if key not in self._facts:
            found = self.described(*key)
            if found is None:
                return None
            self._facts[key] = self._table_facts(found)
        return self._facts[key]

    def described(self, database: str, name: str) -> types.Table | None:
        """The table itself, as the metastore has it."""
        key = database.lower(), name.lower()
        self.prefetch([key])
        return self._tables[key]

    def partitions(self, table: TableFacts) -> Sequence[PartitionFacts]:
        """See :meth:`.placement.CatalogFacts.partitions`.

        :raises ClusterMetadataError: the cluster metadata of one is damaged.
        """
        key = table.database, table.name
        if key not in self._partition_facts:
            described = self.described(*key) or types.Table(dbName=key[0], tableName=key[1])
            rows = (self._partition_fact(described, one) for one in self._read_partitions(key))
            self._partition_facts[key] = Partitions.of(rows)
        return self._partition_facts[key]

    def check_files(
        self,
        database: str,
        name: str,
        cluster: str,
        *,
        values: Iterable[tuple[str, ...]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Compare the files of primaries and of their copies in a cluster with those that were copied.

        :param cluster: its name.
        :param values: of the partitions to look at; all of a partitioned table if ``None``.
        :param options: storage options of both clusters.
        :return: objects whose copy there is not what the primary holds now; routing no longer uses it.
        :raises StorageError: a directory cannot be listed.
        """
        key = database.lower(), name.lower()
        table = self.described(*key)
        if table is None:
            return []
        wanted = None if values is None else set(values)
        objects: list[types.Table | types.Partition] = [table]
        if table.partitionKeys:
            objects = [
                one
                for one in self._read_partitions(key)
                if wanted is None or tuple(one.values or ()) in wanted
            ]
        marks: dict[str, tuple[Any, Secondary]] = {}
        for one in objects:
            partition = one if isinstance(one, types.Partition) else None
            what = object_name(table, partition)
            copy = read_metadata(one.parameters, what).secondaries.get(cluster)
            if copy is not None and one.sd is not None:
                marks[what] = one, copy
        return self._compare(key, cluster, marks, options)

    def _compare(
        self,
        key: Name,
        cluster: str,
        marks: Mapping[str, tuple[Any, Secondary]],
        options: Mapping[str, Any] | None,
    ) -> list[str]:
        # Compactions change the files of a transactional primary, too: its write ids tell what was written.
        by_files = [one.sd.location for one, copy in marks.values() if copy.snapshot is None]
        places = [*by_files, *(copy.location for _, copy in marks.values())]
        listings = list_many(places, options=options, missing_ok=True)
        stale: list[str] = []
        for what, (one, copy) in marks.items():
            changed = copy.snapshot is None and (
                source_mark(one, listings[one.sd.location]).listing != copy.source.listing
            )
            if changed or content_mark(listings[copy.location]) != copy.source.content:
                stale.append(what)
                values = tuple(one.values or ()) if isinstance(one, types.Partition) else ()
                self._stale.add((*key, values, cluster))
        if stale:
            self._facts.pop(key, None)
            self._partition_facts.pop(key, None)
        return stale

    def _read_partitions(self, key: Name) -> list[types.Partition]:
        if key not in self._partitions:
            self._partitions[key] = list(self._client.iter_partitions(*key))
        return self._partitions[key]

    def _table_facts(self, table: types.Table) -> TableFacts:
        key = str(table.dbName).lower(), str(table.tableName).lower()
        is_view = table.tableType in _VIEWS
        placement = None
        metadata = ClusterMetadata() if is_view else read_metadata(table.parameters, full_name(table))
        if metadata.primary or metadata.secondaries:
            placement = self._placement(key, (), table, metadata, metadata.primary)
        partitioned = bool(table.partitionKeys)
        return TableFacts(
            database=key[0],
            name=key[1],
            placement=placement,
            partition_keys=tuple((str(one.name).lower(), str(one.type)) for one in table.partitionKeys or ()),
            view_text=(table.viewExpandedText or table.viewOriginalText or "") if is_view else None,
            bytes=_bytes(table.parameters),
            # Partitions change without their table: what is decided about them cannot be kept.
            # So do the write ids of transactional tables.
            version="" if partitioned or is_transactional(table) else _version(table, sorted(self._stale)),
        )

    def _partition_fact(self, table: types.Table, one: types.Partition) -> PartitionFacts:
        values = tuple(one.values or ())
        metadata = read_metadata(one.parameters, object_name(table, one))
        placement = None
        if metadata.secondaries:
            primary = read_metadata(table.parameters, full_name(table)).primary
            key = str(table.dbName).lower(), str(table.tableName).lower()
            placement = self._placement(key, values, one, metadata, primary)
        return PartitionFacts(values=values, placement=placement, bytes=_bytes(one.parameters))

    def _placement(
        self,
        key: Name,
        values: tuple[str, ...],
        described: types.Table | types.Partition,
        metadata: ClusterMetadata,
        primary: str | None,
    ) -> Placement:
        location = (described.sd.location if described.sd else None) or ""
        home = primary or self._registry.default_cluster().name
        return Placement(
            Copy(home, location),
            tuple(
                Copy(
                    name,
                    one.location,
                    fresh=(*key, values, name) not in self._stale and self._is_fresh(key, described, one),
                )
                for name, one in metadata.secondaries.items()
                if name in self._registry.clusters and name != home
            ),
        )

    def _is_fresh(self, key: Name, described: types.Table | types.Partition, copy: Secondary) -> bool:
        table = self.described(*key)
        if table is None or not is_transactional(table):
            return copy.snapshot is None and copy.source.metadata == metadata_mark(described)
        if key not in self._write_ids:
            name = ".".join(key)
            self._write_ids[key] = take_snapshots(self._client, [name])[name].write_ids
        return is_current(described, copy, self._write_ids[key])


def _bytes(parameters: Mapping[str, str] | None) -> int | None:
    text = (parameters or {}).get("totalSize", "")
    return int(text) if text.isdecimal() else None


def _version(table: types.Table, stale: Sequence[CopyKey]) -> str:
    parts = [
        str(table.createTime),
        (table.sd.location if table.sd else None) or "",
        table.viewExpandedText or "",
        repr(sorted((table.parameters or {}).items())),
        repr(stale),
    ]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]

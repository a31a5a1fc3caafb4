"""Reads the facts for routing from a metastore, in few calls."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from airflow_hive_federation.clusters.acid_snapshots import is_current, missing_writes
from airflow_hive_federation.clusters.altering import full_name, object_name
from airflow_hive_federation.clusters.catalog_events import Changes, EventLog
from airflow_hive_federation.clusters.metadata import (
    ClusterMetadata,
    Secondary,
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
from airflow_hive_federation.clusters.statements.grammar import analyse
from airflow_hive_federation.clusters.statements.statement import Statement
from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.content_marks import content_mark
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.storage.listing import list_many
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.transactions.positions import CHANGED
from airflow_hive_federation.transactions.snapshots import is_transactional, take_snapshots

_VIEW = "VIRTUAL_VIEW"
#: Prefix of Spark's parameters of a view with the catalog and database of unqualified names.
_NAMESPACE = "view.catalogAndNamespace."
_CATALOGS = frozenset({"spark_catalog", "hive"})
#: The number of partitions that are kept between statements; each takes about 300 bytes, or 3 KiB with a
#: copy.
MAX_PARTITIONS = 500_000
Name = tuple[str, str]
#: Database, table, values of a partition (none for a table), and the cluster of a copy.
CopyKey = tuple[str, str, tuple[str, ...], str]


def clusters_of(registry: ClusterRegistry) -> Clusters:
    """Return the names of a registry's clusters, in the form that routing takes.

    :raises UnknownClusterError: no cluster is configured.
    """
    return Clusters(
        names=tuple(registry.clusters),
        default=registry.default_cluster().name,
        use_default=registry.use_default,
    )


@dataclass(frozen=True)
class _Placed:
    """The partitions of a table as facts, and those with copies as the metastore describes them.

    :param identity: the identity of the table, see :func:`_identity`.
    """

    identity: str
    facts: Partitions
    copied: Mapping[tuple[str, ...], types.Partition]


class MetastoreFacts:
    """The tables and partitions of a metastore, as :class:`.placement.CatalogFacts`.

    It keeps the facts that it has read until :meth:`refresh`, which forgets those that may have changed.

    A copy counts as fresh if the metastore knows of no write since the copy was made. :meth:`check_files`
    also compares files; a copy that it finds stale stays so until :meth:`refresh`.

    :param registry: the configured clusters; copies in other clusters are ignored.
    :param pool: makes a pool of further clients. They read the partitions of all tables of
        :meth:`prefetch` at the same time, once those of one table are needed.
    """

    def __init__(
        self,
        client: MetastoreClient,
        registry: ClusterRegistry,
        *,
        pool: Callable[[], MetastorePool] | None = None,
    ) -> None:
        self._client = client
        self._registry = registry
        self._pool = pool
        #: The tables of the statement.
        self._named: dict[Name, None] = {}
        self._log = EventLog(client)
        self._tables: dict[Name, types.Table | None] = {}
        self._facts: dict[Name, TableFacts] = {}
        self._placed: dict[Name, _Placed] = {}
        self._partition_facts: dict[Name, Partitions] = {}
        self._stale: set[CopyKey] = set()
        self._write_ids: dict[Name, ValidWriteIds] = {}
        #: A part of the versions of partitioned tables, like the last event of each table.
        self._epoch = 0
        self._last_events: dict[Name, int] = {}

    def refresh(self) -> None:
        """Begin another statement: forget all facts that may have changed, by the metastore's events.

        It keeps no facts of transactional tables, which change by transactions, and no facts at all if the
        metastore has no events.

        :raises MetastoreError: the metastore does not answer.
        """
        for database, name, *_ in self._stale:
            self._facts.pop((database, name), None)
        self._stale.clear()
        self._write_ids.clear()
        self._partition_facts.clear()
        self._named.clear()
        changes = self._log.changes()
        if changes is None:
            self._epoch += 1
            for facts in (self._tables, self._facts, self._placed, self._last_events):
                facts.clear()
            return
        for key, table in list(self._tables.items()):
            if table is not None and is_transactional(table):
                self._placed.pop(key, None)
                self._facts.pop(key, None)
                del self._tables[key]
        if changes:
            self._forget(changes)
        if sum(len(placed.facts) for placed in self._placed.values()) > MAX_PARTITIONS:
            self._placed.clear()

    def _forget(self, changes: Changes) -> None:
        # Events name a renamed table by its new name only, so all table descriptions are read again, which
        # takes one call. The partitions are kept if their table has the same description as before.
        self._tables.clear()
        self._facts.clear()
        self._last_events.update(changes.tables)
        # Such events are rare, so they count as changes of the partitions of all tables.
        self._epoch += bool(changes.databases)
        for key in list(self._placed):
            if key in changes.tables or key[0] in changes.databases:
                del self._placed[key]

    def prefetch(self, names: Iterable[Name]) -> None:
        """Read tables, a hundred per call, and remember which of them do not exist.

        :param names: the databases and names of the tables.
        """
        wanted = [(database.lower(), name.lower()) for database, name in names]
        self._named.update(dict.fromkeys(wanted))
        self._read_tables(wanted)

    def _read_tables(self, names: Iterable[Name]) -> None:
        by_database: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for database, name in names:
            if (database, name) not in self._tables:
                by_database[database][name] = None
        for database, tables in by_database.items():
            try:
                described = self._client.get_tables(database, list(tables))
            except NoSuchObjectError:
                # A database that does not exist has no tables either.
                described = []
            tables_by_name = {str(table.tableName).lower(): table for table in described}
            self._tables.update({(database, name): tables_by_name.get(name) for name in tables})

    def table(self, database: str, name: str) -> TableFacts | None:
        """Return the facts of a table; see :meth:`.placement.CatalogFacts.table`.

        :raises ClusterMetadataError: its cluster metadata is damaged.
        """
        key = database.lower(), name.lower()
        if key not in self._facts:
            description = self.described(*key)
            if description is None:
                return None
            self._facts[key] = self._table_facts(description)
            self._prefetch_of_view(self._facts[key])
        return self._facts[key]

    def _prefetch_of_view(self, view: TableFacts) -> None:
        """Read all tables that a view's text names in few calls."""
        text = analyse(view.view_text) if view.view_text else None
        if isinstance(text, Statement):
            home = view.view_database or view.database
            self.prefetch((name.database or home, name.name) for name in text.names)

    def described(self, database: str, name: str) -> types.Table | None:
        """Return the table object as the metastore describes it."""
        key = database.lower(), name.lower()
        self._read_tables([key])
        return self._tables[key]

    def partitions(self, table: TableFacts) -> Sequence[PartitionFacts]:
        """Return the facts of the partitions; see :meth:`.placement.CatalogFacts.partitions`.

        :raises ClusterMetadataError: the cluster metadata of a partition is damaged.
        """
        key = table.database, table.name
        if key not in self._partition_facts:
            placed = self._partitions_of(key)
            stale = {values for database, name, values, _ in self._stale if (database, name) == key}
            self._partition_facts[key] = self._with_stale(key, placed, stale) if stale else placed.facts
        return self._partition_facts[key]

    def _with_stale(self, key: Name, placed: _Placed, stale: Set[tuple[str, ...]]) -> Partitions:
        table = self._table_of(key)
        return Partitions.of(
            self._partition_fact(table, placed.copied[fact.values]) if fact.values in stale else fact
            for fact in placed.facts
        )

    def changed_s(self, table: TableFacts, values: tuple[str, ...]) -> int | None:
        """Return the time of the last change of a table, or of a partition with copies, if it is known.

        :param values: the values of the partition; none for the table.
        :return: seconds since 1970, by the metastore's clock.
        """
        text = self._parameters(table, values).get(CHANGED, "")
        return int(text) if text.isdecimal() else None

    def missing_writes(self, table: TableFacts, values: tuple[str, ...], cluster: str) -> int | None:
        """Return the number of writes of a transactional table that a copy lacks; ``None`` if it is unknown.

        :param values: the values of the partition; none for the table.
        """
        key = table.database, table.name
        copy = read_metadata(self._parameters(table, values), str(table)).secondaries.get(cluster)
        if copy is None or copy.snapshot is None or key not in self._write_ids:
            return None
        return missing_writes(copy.snapshot, self._write_ids[key])

    def _parameters(self, table: TableFacts, values: tuple[str, ...]) -> Mapping[str, str]:
        key = table.database, table.name
        described = self._partitions_of(key).copied.get(values) if values else self.described(*key)
        return (described.parameters if described else None) or {}

    def forget_partitions(self, database: str, name: str) -> None:
        """Forget the partitions of a table; whoever needs them again reads them again."""
        key = database.lower(), name.lower()
        self._placed.pop(key, None)
        self._partition_facts.pop(key, None)

    def check_files(
        self,
        database: str,
        name: str,
        cluster: str,
        *,
        values: Iterable[tuple[str, ...]] | None = None,
        options: StorageOptions | None = None,
    ) -> list[str]:
        """Compare the files of primaries, and of their copies in a cluster, with the files that were copied.

        :param cluster: the name of the cluster.
        :param values: the values of the partitions to compare; all partitions if ``None``.
        :param options: the storage options of both clusters.
        :return: the objects whose copy differs from the present primary; routing no longer uses these copies.
        :raises StorageError: a directory cannot be listed.
        """
        key = database.lower(), name.lower()
        table = self.described(*key)
        if table is None:
            return []
        wanted_values = None if values is None else set(values)
        objects: list[types.Table | types.Partition] = [table]
        if table.partitionKeys:
            copied = self._partitions_of(key).copied
            objects = [
                described
                for values, described in copied.items()
                if wanted_values is None or values in wanted_values
            ]
        marks: dict[str, tuple[Any, Secondary]] = {}
        for described in objects:
            partition = described if isinstance(described, types.Partition) else None
            object_title = object_name(table, partition)
            copy = read_metadata(described.parameters, object_title).secondaries.get(cluster)
            if copy is not None and described.sd is not None:
                marks[object_title] = described, copy
        return self._compare(key, cluster, marks, options)

    def _compare(
        self,
        key: Name,
        cluster: str,
        marks: Mapping[str, tuple[Any, Secondary]],
        options: StorageOptions | None,
    ) -> list[str]:
        # Compactions also change the files of a transactional primary, so its writes are detected by write
        # ids.
        by_files = [described.sd.location for described, copy in marks.values() if copy.snapshot is None]
        locations = [*by_files, *(copy.location for _, copy in marks.values())]
        listings = list_many(locations, options=options, missing_ok=True)
        stale: list[str] = []
        for object_title, (described, copy) in marks.items():
            changed = copy.snapshot is None and (
                source_mark(described, listings[described.sd.location]).listing != copy.source.listing
            )
            if changed or content_mark(listings[copy.location]) != copy.source.content:
                stale.append(object_title)
                values = tuple(described.values or ()) if isinstance(described, types.Partition) else ()
                self._stale.add((*key, values, cluster))
        if stale:
            self._facts.pop(key, None)
            self._partition_facts.pop(key, None)
        return stale

    def _partitions_of(self, key: Name) -> _Placed:
        if not self._is_placed(key):
            keys = [key, *self._others_to_place(key)]
            if self._pool is None or len(keys) == 1:
                self._placed[key] = self._place(self._client, key)
            else:
                self._place_all(keys, self._pool)
        return self._placed[key]

    def _is_placed(self, key: Name) -> bool:
        placed = self._placed.get(key)
        return placed is not None and placed.identity == _identity(self._table_of(key))

    def _others_to_place(self, key: Name) -> list[Name]:
        """Return the other partitioned tables of the statement whose partitions have not been read."""
        tables = ((name, self._tables.get(name)) for name in self._named if name != key)
        return [name for name, table in tables if table and table.partitionKeys and not self._is_placed(name)]

    def _place_all(self, keys: Sequence[Name], make_pool: Callable[[], MetastorePool]) -> None:
        """Read the partitions of several tables at the same time."""
        # The threads only read what this one has prepared.
        self._take_write_ids([key for key in keys if is_transactional(self._table_of(key))])
        with make_pool() as pool, ThreadPoolExecutor(pool.size, thread_name_prefix="partitions") as threads:

            def place(key: Name) -> _Placed:
                with pool.client() as client:
                    return self._place(client, key)

            self._placed.update(zip(keys, threads.map(place, keys), strict=True))

    def _place(self, client: MetastoreClient, key: Name) -> _Placed:
        table = self._table_of(key)
        facts, copied = [], {}
        for partition in client.iter_partitions(*key):
            facts.append(self._partition_fact(table, partition))
            if facts[-1].placement is not None:
                copied[facts[-1].values] = _slim(partition)
        return _Placed(_identity(table), Partitions.of(facts), copied)

    def _table_of(self, key: Name) -> types.Table:
        return self.described(*key) or types.Table(dbName=key[0], tableName=key[1])

    def _table_facts(self, table: types.Table) -> TableFacts:
        key = str(table.dbName).lower(), str(table.tableName).lower()
        is_view = table.tableType == _VIEW
        placement = None
        metadata = ClusterMetadata() if is_view else read_metadata(table.parameters, full_name(table))
        if metadata.primary or metadata.secondaries:
            placement = self._placement(key, (), table, metadata, metadata.primary)
        keys = [(str(field.name).lower(), str(field.type)) for field in table.partitionKeys or ()]
        columns = [str(column.name).lower() for column in (table.sd and table.sd.cols) or ()]
        facts = TableFacts(
            database=key[0],
            name=key[1],
            placement=placement,
            partition_keys=() if is_view else tuple(keys),
            columns=(*columns, *(name for name, _ in keys)) if is_view else (),
            view_text=_view_text(table) if is_view else None,
            view_database=_view_database(table) if is_view else None,
            bytes=_bytes(table.parameters),
        )
        return replace(facts, version=self._version(key, table, facts))

    def _version(self, key: Name, table: types.Table, facts: TableFacts) -> str:
        if is_transactional(table):
            return ""
        parts = [repr(facts), _identity(table)]
        if facts.is_partitioned:
            # Partitions change without their table.
            if not self._log.is_followed:
                return ""
            stale = sorted(copy_key for copy_key in self._stale if copy_key[:2] == key)
            parts += [str(self._epoch), str(self._last_events.get(key)), repr(stale)]
        return _digest(parts)

    def _partition_fact(self, table: types.Table, partition: types.Partition) -> PartitionFacts:
        values = tuple(partition.values or ())
        metadata = read_metadata(partition.parameters, object_name(table, partition))
        placement = None
        if metadata.secondaries:
            primary = read_metadata(table.parameters, full_name(table)).primary
            key = str(table.dbName).lower(), str(table.tableName).lower()
            placement = self._placement(key, values, partition, metadata, primary)
        return PartitionFacts(values=values, placement=placement, bytes=_bytes(partition.parameters))

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
                    copy.location,
                    fresh=(*key, values, name) not in self._stale and self._is_fresh(key, described, copy),
                )
                for name, copy in metadata.secondaries.items()
                if name in self._registry.clusters and name != home
            ),
        )

    def _is_fresh(self, key: Name, described: types.Table | types.Partition, copy: Secondary) -> bool:
        table = self.described(*key)
        if table is None or not is_transactional(table):
            return copy.snapshot is None and copy.source.metadata == metadata_mark(described)
        self._take_write_ids([key])
        return is_current(described, copy, self._write_ids[key])

    def _take_write_ids(self, keys: Iterable[Name]) -> None:
        names = {".".join(key): key for key in keys if key not in self._write_ids}
        if names:
            for name, snapshot in take_snapshots(self._client, list(names)).items():
                self._write_ids[names[name]] = snapshot.write_ids


def _bytes(parameters: Mapping[str, str] | None) -> int | None:
    text = (parameters or {}).get("totalSize", "")
    return int(text) if text.isdecimal() else None


def _identity(table: types.Table) -> str:
    """Return a digest of the table that partitions belong to: a later table may have the same name."""
    location = (table.sd.location if table.sd else None) or ""
    parameters = repr(sorted((table.parameters or {}).items()))
    keys = repr([(key.name, key.type) for key in table.partitionKeys or ()])
    return _digest([str(table.createTime), str(getattr(table, "id", None)), location, parameters, keys])


def _digest(parts: Iterable[str]) -> str:
    text = "\0".join(parts)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _slim(partition: types.Partition) -> types.Partition:
    """Return the partition without its columns and formats, which are most of its size."""
    storage = types.StorageDescriptor(location=partition.sd.location) if partition.sd else None
    return types.Partition(
        values=partition.values, parameters=partition.parameters, writeId=partition.writeId, sd=storage
    )


def _view_text(table: types.Table) -> str:
    """Return the text of a view; empty, which is unreadable, if its names may belong to another catalog."""
    if _view_database(table) == "":
        return ""
    return table.viewExpandedText or table.viewOriginalText or ""


def _view_database(table: types.Table) -> str | None:
    """Return the database of unqualified names in a Spark view, whose text is stored as the user wrote it.

    :return: ``None`` for a Hive view, whose text has only qualified names; empty for another catalog.
    """
    parameters = table.parameters or {}
    count = parameters.get(_NAMESPACE + "numParts")
    if count is None:
        return None
    parts = [parameters.get(f"{_NAMESPACE}part.{number}", "") for number in range(2)]
    return parts[1].lower() if count == "2" and parts[0] in _CATALOGS else ""

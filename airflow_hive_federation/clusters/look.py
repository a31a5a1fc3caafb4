"""Describes tables by cluster: the primary, the copies, and the changes that stale copies lack.

A look knows the metastore alone. Writes past the metastore show where files are compared: when a statement is
routed, and when the table is copied again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_hive_federation.clusters.assignment import chosen_databases, reason_to_skip
from airflow_hive_federation.clusters.catalog import MetastoreFacts
from airflow_hive_federation.clusters.metadata import PRIMARY
from airflow_hive_federation.clusters.placement import PartitionFacts, TableFacts
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.errors import ClusterMetadataError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.calls.base import batches
from airflow_hive_federation.transactions.snapshots import is_transactional

_TABLES_PER_CALL = 100


@dataclass(frozen=True, kw_only=True)
class CopyLook:
    """The copies of one table in one secondary cluster.

    :param objects: number of partitions with a copy; 1 for an unpartitioned table.
    :param stale: number of those whose primary has changed since.
    :param stale_bytes: size of these in the primary; ``None`` if it is unknown.
    :param lacks_since_s: time of the oldest known change that the stale copies lack, in seconds since 1970;
        ``None`` without one, and for transactional tables.
    :param lacks_writes: the most writes that one of the stale copies lacks, of a transactional table; a write
        of another partition counts, too. ``None`` for other tables.
    """

    cluster: str
    objects: int
    stale: int = 0
    stale_bytes: int | None = None
    lacks_since_s: int | None = None
    lacks_writes: int | None = None


@dataclass(frozen=True, kw_only=True)
class TableLook:
    """The clusters of one table.

    :param table: ``database.table``.
    :param primary: the primary cluster; empty for a table in no cluster.
    :param assigned: false if the table is in its cluster because that is the default one.
    :param partitions: number of partitions; ``None`` for an unpartitioned table.
    :param copies: the copies by cluster, in the order of the names.
    :param problem: the reason for which the cluster metadata cannot be read.
    """

    table: str
    primary: str = ""
    assigned: bool = False
    partitions: int | None = None
    copies: tuple[CopyLook, ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class ClusterStatus:
    """Numbers of the tables of all clusters.

    :param tables: number of tables that hold data.
    :param copies: number of those with copies in secondary clusters.
    :param stale: number of those with stale copies.
    :param problems: the tables whose cluster metadata cannot be read, with the reasons.
    """

    tables: int = 0
    copies: int = 0
    stale: int = 0
    problems: Mapping[str, str] = field(default_factory=dict)


def look_at_clusters(
    client: MetastoreClient,
    registry: ClusterRegistry,
    databases: Sequence[str] | None = None,
    *,
    looked_at: Callable[[str, Sequence[TableLook]], None],
) -> ClusterStatus:
    """Describe the tables of databases, one database at a time.

    :param databases: the names of the databases; all databases if ``None``.
    :param looked_at: receives each database, with its tables.
    :raises NoSuchObjectError: a database does not exist.
    :raises MetastoreError: the metastore does not answer.
    """
    tables = copies = stale = 0
    problems: dict[str, str] = {}
    for database in chosen_databases(client, databases):
        looks = list(_look_at_database(client, registry, database))
        looked_at(database, looks)
        tables += len(looks)
        copies += sum(bool(look.copies) for look in looks)
        stale += sum(any(copy.stale for copy in look.copies) for look in looks)
        problems.update({look.table: look.problem for look in looks if look.problem})
    return ClusterStatus(tables=tables, copies=copies, stale=stale, problems=problems)


def look_at_table(
    facts: MetastoreFacts, registry: ClusterRegistry, database: str, name: str
) -> TableLook | None:
    """Describe one table; ``None`` for views, remotes and names without a table, which hold no data.

    :raises MetastoreError: the metastore does not answer.
    """
    described = facts.described(database, name)
    if described is None or reason_to_skip(described):
        return None
    title = f"{database}.{name}".lower()
    try:
        table = facts.table(database, name)
        if table is None:
            return None
        rows = facts.partitions(table) if table.is_partitioned else None
    except ClusterMetadataError as error:
        return TableLook(table=title, problem=error.message)
    assigned = (described.parameters or {}).get(PRIMARY) or ""
    default = (registry.default or "") if registry.use_default else ""
    return TableLook(
        table=title,
        primary=assigned or default,
        assigned=bool(assigned),
        partitions=None if rows is None else len(rows),
        copies=tuple(_copies(facts, table, rows)),
    )


def _look_at_database(
    client: MetastoreClient, registry: ClusterRegistry, database: str
) -> Iterator[TableLook]:
    """Describe the tables of a database, a hundred at a time, with the partitions of one table in memory."""
    for names in batches(client.list_tables(database), _TABLES_PER_CALL):
        facts = MetastoreFacts(client, registry)
        facts.prefetch((database, name) for name in names)
        for name in names:
            look = look_at_table(facts, registry, database, name)
            if look is not None:
                yield look
            facts.forget_partitions(database, name)


def _copies(
    facts: MetastoreFacts, table: TableFacts, rows: Sequence[PartitionFacts] | None
) -> Iterator[CopyLook]:
    """Yield the copies per cluster."""
    # Write ids reveal the changes of a transactional table, and have no times.
    described = facts.described(table.database, table.name)
    timed = described is not None and not is_transactional(described)
    found: defaultdict[str, list[tuple[PartitionFacts, bool]]] = defaultdict(list)
    for row in [PartitionFacts((), table.placement, table.bytes)] if rows is None else rows:
        for copy in row.placement.secondaries if row.placement else ():
            found[copy.cluster].append((row, copy.fresh))
    for cluster, objects in sorted(found.items()):
        stale = [row for row, fresh in objects if not fresh]
        sizes = [row.bytes for row in stale]
        times = [facts.changed_s(table, row.values) for row in stale] if timed else []
        writes = [facts.missing_writes(table, row.values, cluster) for row in stale if not timed]
        yield CopyLook(
            cluster=cluster,
            objects=len(objects),
            stale=len(stale),
            stale_bytes=None if None in sizes else sum(size for size in sizes if size is not None),
            lacks_since_s=min((time for time in times if time is not None), default=None),
            lacks_writes=max((number for number in writes if number is not None), default=None),
        )

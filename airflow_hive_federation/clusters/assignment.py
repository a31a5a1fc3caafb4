"""Puts every existing table into a cluster, the default one as a rule, and takes that back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from airflow_hive_federation.clusters.altering import alter_table_metadata, full_name, object_name
from airflow_hive_federation.clusters.metadata import ClusterMetadata, read_metadata
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.errors import ClusterMetadataError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.calls.base import batches
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.remote_links import remote_of

_TABLES_A_CALL = 100
_VIEWS = frozenset({"VIRTUAL_VIEW", "MATERIALIZED_VIEW"})


@dataclass(frozen=True, kw_only=True)
class AssignReport:
    """The result of an assignment.

    :param cluster: the cluster.
    :param undo: it was taken back.
    :param dry_run: nothing was written; ``changed`` says what would have been.
    :param changed: tables that were assigned, or taken out.
    :param unchanged: number of tables that were as wanted already.
    :param elsewhere: tables of other clusters, which keep theirs, by name.
    :param skipped: tables that cannot belong to a cluster, or keep theirs, with the reason.
    """

    cluster: str
    undo: bool = False
    dry_run: bool = False
    changed: list[str] = field(default_factory=list)
    unchanged: int = 0
    elsewhere: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def assign_tables(
    client: MetastoreClient,
    registry: ClusterRegistry,
    *,
    cluster: str | None = None,
    databases: Sequence[str] | None = None,
    undo: bool = False,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> AssignReport:
    """Make a cluster the primary of all tables that have none.

    No data moves and no location changes. A run that was interrupted is finished by running it again.

    :param cluster: its name; the default cluster if ``None``.
    :param databases: names; all databases if ``None``.
    :param undo: take tables of the cluster out of it instead, unless they have copies.
    :param dry_run: write nothing.
    :param progress: is called with the number of tables looked at, and of all.
    :raises UnknownClusterError: there is no such cluster.
    :raises NoSuchObjectError: there is no such database.
    :raises MetastoreError: the metastore refuses.
    """
    name = (registry.default_cluster() if cluster is None else registry.cluster(cluster)).name
    report = AssignReport(cluster=name, undo=undo, dry_run=dry_run)
    listed = [(database, client.list_tables(database)) for database in _databases(client, databases)]
    total, seen, unchanged = sum(len(tables) for _, tables in listed), 0, 0
    for database, tables in listed:
        for some in batches(tables, _TABLES_A_CALL):
            for table in client.get_tables(database, some):
                unchanged += _assign(client, table, report)
            seen += len(some)
            if progress is not None:
                progress(seen, total)
    return replace(report, unchanged=unchanged)


def _databases(client: MetastoreClient, databases: Sequence[str] | None) -> Iterator[str]:
    if databases is None:
        yield from client.list_databases()
        return
    for name in databases:
        yield client.get_database(name).name or name


def _assign(client: MetastoreClient, table: types.Table, report: AssignReport) -> bool:
    """Assign one table, or take it out; return whether it was as wanted already."""
    name = full_name(table)
    if why := reason_to_skip(table):
        report.skipped[name] = why
        return False
    try:
        present = read_metadata(table.parameters, name)
    except ClusterMetadataError as error:
        report.skipped[name] = error.message
        return False
    if present.primary not in {None, report.cluster}:
        report.elsewhere[name] = str(present.primary)
        return False
    if (present.primary is None) == report.undo:
        return True
    if report.undo and (copies := _copies(client, table, present)):
        report.skipped[name] = f"it has copies in other clusters: {copies}"
        return False
    wanted = None if report.undo else report.cluster
    primary = wanted if report.dry_run else _altered(client, table, report.cluster, wanted)
    if primary == wanted:
        report.changed.append(name)
    else:
        # Somebody has assigned it to another cluster meanwhile.
        report.elsewhere[name] = str(primary)
    return False


def _altered(client: MetastoreClient, table: types.Table, cluster: str, wanted: str | None) -> str | None:
    """Alter the primary of a table, unless it is another cluster by now; return the primary it has then."""
    after = alter_table_metadata(
        client,
        table,
        lambda now: replace(now, primary=wanted) if now.primary in {None, cluster} else now,
    )
    return read_metadata(after.parameters, full_name(table)).primary


def reason_to_skip(table: types.Table) -> str | None:
    """Say why a table has no place in a cluster; ``None`` if it has."""
    if table.tableType in _VIEWS:
        return "it is a view"
    if remote := remote_of(table.parameters):
        return f"it stands for the remote table {remote}"
    if table.sd is None or not table.sd.location:
        return "it has no location"
    return None


def _copies(client: MetastoreClient, table: types.Table, present: ClusterMetadata) -> str:
    found = set(present.secondaries)
    if table.partitionKeys:
        for one in client.iter_partitions(table.dbName or "", table.tableName or ""):
            found.update(read_metadata(one.parameters, object_name(table, one)).secondaries)
    return ", ".join(sorted(found))

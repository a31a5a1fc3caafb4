"""Assigns every existing table to a cluster, by default the default cluster, or undoes that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from airflow_hive_federation.clusters.altering import alter_table_metadata, full_name, object_name
from airflow_hive_federation.clusters.metadata import ClusterMetadata, read_metadata
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.errors import ClusterMetadataError, NoSuchObjectError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.calls.base import batches
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.remote_links import remote_of
from airflow_hive_federation.progress.events import TablesProcessed
from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.runtime.arguments import texts

_TABLES_PER_CALL = 100
_VIEW, _MATERIALIZED = "VIRTUAL_VIEW", "MATERIALIZED_VIEW"


@dataclass(frozen=True, kw_only=True)
class AssignReport:
    """The result of an assignment.

    :param cluster: the name of the cluster.
    :param undo: true if the assignment was undone.
    :param dry_run: true if nothing was written; ``changed`` then names the tables that would be changed.
    :param changed: the tables that were assigned, or removed from the cluster.
    :param unchanged: the number of tables that needed no change.
    :param elsewhere: the tables that stay in other clusters, and the names of these clusters.
    :param skipped: the tables that cannot belong to a cluster, or cannot leave it, with the reasons.
    """

    cluster: str
    undo: bool = False
    dry_run: bool = False
    changed: list[str] = field(default_factory=list)
    unchanged: int = 0
    elsewhere: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def assign_tables(
    client: MetastoreClient,
    registry: ClusterRegistry,
    *,
    cluster: str | None = None,
    databases: Sequence[str] | None = None,
    undo: bool = False,
    dry_run: bool = False,
    observer: Observer = LOGGED,
) -> AssignReport:
    """Make a cluster the primary of all tables that have no primary yet.

    No data moves and no location changes. If the run is interrupted, another run finishes it.

    :param cluster: the name of the cluster; the default cluster if ``None``.
    :param databases: the names of the databases; all databases if ``None``.
    :param undo: remove the tables from the cluster instead, except those that have copies.
    :param dry_run: write nothing.
    :param observer: receives the numbers of tables processed and of all tables.
    :raises UnknownClusterError: the cluster does not exist.
    :raises NoSuchObjectError: a database does not exist.
    :raises MetastoreError: the metastore refuses.
    """
    name = (registry.default_cluster() if cluster is None else registry.cluster(cluster)).name
    report = AssignReport(cluster=name, undo=undo, dry_run=dry_run)
    listed = [(database, client.list_tables(database)) for database in chosen_databases(client, databases)]
    total, processed, unchanged = sum(len(tables) for _, tables in listed), 0, 0
    for database, tables in listed:
        for batch in batches(tables, _TABLES_PER_CALL):
            for table in client.get_tables(database, batch):
                unchanged += _assign(client, table, report)
            processed += len(batch)
            observer(TablesProcessed(tables=processed, all_tables=total))
    return replace(report, unchanged=unchanged)


def chosen_databases(client: MetastoreClient, databases: Sequence[str] | None) -> Iterator[str]:
    """Yield the names of databases; all of the metastore if ``None``.

    :raises NoSuchObjectError: a database does not exist.
    :raises ConfigurationError: the databases are no list of names.
    """
    if databases is None:
        yield from client.list_databases()
        return
    for name in texts("databases", databases):
        try:
            database = client.get_database(name)
        except NoSuchObjectError as error:
            raise NoSuchObjectError(
                f"There is no database {name}: {error.message}",
                remedy="Correct the name, or that of the metastore.",
                **{**error.facts, "database": name},
            ) from error
        yield database.name or name


def _assign(client: MetastoreClient, table: types.Table, report: AssignReport) -> bool:
    """Assign one table or remove it from the cluster; return whether it needed no change."""
    name = full_name(table)
    if reason := reason_to_skip(table):
        report.skipped[name] = reason
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
    new_primary = None if report.undo else report.cluster
    primary = new_primary if report.dry_run else _altered(client, table, report.cluster, new_primary)
    if primary == new_primary:
        report.changed.append(name)
    else:
        # Another process has assigned it to another cluster meanwhile.
        report.elsewhere[name] = str(primary)
    return False


def _altered(client: MetastoreClient, table: types.Table, cluster: str, wanted: str | None) -> str | None:
    """Alter the primary of a table unless it is another cluster by now; return the primary afterwards."""
    after = alter_table_metadata(
        client,
        table,
        lambda now: replace(now, primary=wanted) if now.primary in {None, cluster} else now,
    )
    return read_metadata(after.parameters, full_name(table)).primary


def reason_to_skip(table: types.Table) -> str | None:
    """Return the reason why a table cannot belong to a cluster, as a clause; ``None`` if it can."""
    if table.tableType == _VIEW:
        return "it is a view"
    if remote := remote_of(table.parameters):
        return f"it stands for the remote table {remote}"
    if table.sd is None or not table.sd.location:
        return "it has no location"
    return None


def reason_to_stay(table: types.Table) -> tuple[str, str] | None:
    """Return the reason that binds a table to its primary cluster, and the remedy; ``None`` without one.

    Hive rebuilds a materialized view from tables of its cluster, and engines use it in place of these.
    """
    if reason := reason_to_skip(table):
        return reason, "Choose a table that holds data."
    if table.tableType == _MATERIALIZED:
        return (
            "it is a materialized view, which Hive rebuilds where its tables are",
            "Make a table of its rows with Hive (CREATE EXTERNAL TABLE ... AS SELECT), and choose that one.",
        )
    return None


def _copies(client: MetastoreClient, table: types.Table, present: ClusterMetadata) -> str:
    clusters = set(present.secondaries)
    if table.partitionKeys:
        for partition in client.iter_partitions(table.dbName or "", table.tableName or ""):
            clusters.update(read_metadata(partition.parameters, object_name(table, partition)).secondaries)
    return ", ".join(sorted(clusters))

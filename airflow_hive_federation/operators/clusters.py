"""Clusters of one metastore, as Airflow tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseOperator

from airflow_hive_federation.hooks.clusters import find_registry
from airflow_hive_federation.hooks.failing import as_airflow_error
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.spark import SparkPipelineHook

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.clusters.registry import ClusterRegistry
    from airflow_hive_federation.clusters.running import RoutedStatement
    from airflow_hive_federation.metastore import MetastoreClient


class _ClusterOperator(BaseOperator):
    """Base of the operators of clusters.

    :param metastore_conn_id: connection of the metastore. (templated)
    :param clusters: the registry: path or URI of a JSON file, name of an Airflow variable, or ``metastore``
        for the metastore's own configuration; see :func:`.hooks.clusters.find_registry`. (templated)
    """

    template_fields: Sequence[str] = ("metastore_conn_id", "clusters")
    ui_color = "#e4f0dd"

    def __init__(
        self,
        *,
        metastore_conn_id: str = HiveMetastoreHook.default_conn_name,
        clusters: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.metastore_conn_id = metastore_conn_id
        self.clusters = clusters

    @contextmanager
    def _open(self) -> Iterator[tuple[MetastoreClient, ClusterRegistry, dict[str, Any]]]:
        """The metastore, the registry, and the storage options of the connection."""
        hook = HiveMetastoreHook(self.metastore_conn_id)
        with as_airflow_error(), hook.client() as client:
            options = hook.storage_options
            yield client, find_registry(self.clusters, client, options), options


class AssignClusterOperator(_ClusterOperator):
    """Makes a cluster the primary of all tables that have none. No data moves.

    Returns the report: ``changed``, ``unchanged``, ``elsewhere`` and ``skipped`` tables. A task that was
    interrupted is finished by running it again.

    :param cluster: its name; the default cluster if ``None``. (templated)
    :param databases: names; all databases if ``None``. (templated)
    :param undo: take the tables of the cluster out of it instead, but for those that have copies.
    :param dry_run: write nothing, and report what would be changed.
    """

    template_fields: Sequence[str] = (*_ClusterOperator.template_fields, "cluster", "databases")

    def __init__(
        self,
        *,
        cluster: str | None = None,
        databases: Sequence[str] | None = None,
        undo: bool = False,
        dry_run: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cluster = cluster
        self.databases = databases
        self.undo = undo
        self.only_report = dry_run

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_hive_federation.clusters.assignment import assign_tables

        with self._open() as (client, registry, _):
            report = assign_tables(
                client,
                registry,
                cluster=self.cluster,
                databases=self.databases,
                undo=self.undo,
                dry_run=self.only_report,
                progress=self._tell,
            )
        for name, why in report.skipped.items():
            self.log.warning("%s is left as it is, because %s", name, why)
        return report.to_json()

    def _tell(self, seen: int, total: int) -> None:
        self.log.info("%s of %s tables", f"{seen:,}", f"{total:,}")


class CopyToClusterOperator(_ClusterOperator):
    """Copies a table, or partitions of it, to a secondary cluster, unless they are up to date there.

    Returns the report: ``copied`` and ``current`` objects, ``files``, ``size_bytes`` and ``removed``
    directories. A task that was interrupted is taken up by the next try.

    :param table: ``database.table``. (templated)
    :param cluster: the cluster to copy to. (templated)
    :param partitions: names, ``day=2026-01-01``; all if neither they nor ``where`` are given. (templated)
    :param where: a condition on partition keys, ``day >= '2026-01-01'``. (templated)
    :param move_from: copy only what has copies in this cluster, and drop these afterwards: the copies move.
        Returns the report of the move: ``moved`` objects, ``files``, ``size_bytes`` and ``removed``
        directories. (templated)
    :param drop: drop the copies there instead.
    :param spark_conn_id: connection of the Spark that copies; by default that of the cluster. (templated)
    """

    template_fields: Sequence[str] = (
        *_ClusterOperator.template_fields,
        "table",
        "cluster",
        "partitions",
        "where",
        "move_from",
        "spark_conn_id",
    )

    def __init__(
        self,
        *,
        table: str,
        cluster: str,
        partitions: Sequence[str] | None = None,
        where: str | None = None,
        move_from: str | None = None,
        drop: bool = False,
        spark_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.move_from = move_from
        self.table = table
        self.cluster = cluster
        self.partitions = partitions
        self.where = where
        self.drop = drop
        self.spark_conn_id = spark_conn_id
        self._spark: SparkPipelineHook | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_hive_federation.clusters.copies import copy_to_cluster, drop_copies
        from airflow_hive_federation.clusters.moving import move_copies

        with self._open() as (client, registry, options):
            chosen: dict[str, Any] = {
                "partitions": self.partitions,
                "where": self.where,
                "options": options,
            }
            if self.drop:
                return drop_copies(client, registry, self.table, self.cluster, **chosen).to_json()
            conn_id = self.spark_conn_id or registry.cluster(self.cluster).spark_conn_id
            self._spark = SparkPipelineHook(conn_id, storage_options=options)
            run_copy = self._spark.copy_runner()
            if self.move_from is not None:
                places = self.move_from, self.cluster
                return move_copies(
                    client, registry, self.table, *places, run_copy=run_copy, **chosen
                ).to_json()
            return copy_to_cluster(client, registry, self.table, self.cluster, run_copy, **chosen).to_json()

    def on_kill(self) -> None:
        """Kill the copy job."""
        if self._spark is not None:
            self._spark.on_kill()


class ChangePrimaryOperator(_ClusterOperator):
    """Makes a cluster with fresh copies of a table, and of all its partitions, its primary.

    Returns the report: ``cluster``, ``former``, ``moved`` objects and ``removed`` directories. A task that
    was interrupted is ended by the next try.

    :param table: ``database.table``. (templated)
    :param cluster: the secondary cluster that becomes the primary. (templated)
    :param keep_former: the former primary becomes a secondary; otherwise its files are removed.
    """

    template_fields: Sequence[str] = (*_ClusterOperator.template_fields, "table", "cluster")

    def __init__(self, *, table: str, cluster: str, keep_former: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.cluster = cluster
        self.keep_former = keep_former

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_hive_federation.clusters.primary import change_primary

        with self._open() as (client, registry, options):
            return change_primary(
                client, registry, self.table, self.cluster, keep_former=self.keep_former, options=options
            ).to_json()


class RoutedSqlOperator(_ClusterOperator):
    """Runs statements by Spark, each in the cluster that has all that it needs.

    A statement is routed when it begins, after those before it have ended. Spark reads every table at its
    place in that cluster, and new tables are created there. ``USE CLUSTER name`` fixes the cluster for the
    statements that follow, ``USE CLUSTER`` routes again. Returns one route per statement: ``cluster``,
    ``rule``, ``reason``, and ``columns`` and ``rows``.

    :param sql: the statements, or a file of them. (templated)
    :param cluster: the cluster to begin with, as ``USE CLUSTER`` does. (templated)
    :param database: the database to begin with. (templated)
    :param policy: ``strict`` refuses statements whose tables are not known for certain; ``default`` runs
        them in the default cluster.
    :param check_files: list files before a copy is used; see :class:`.clusters.running.LiveRouter`.
    :param max_rows: rows of each query that are returned.
    """

    template_fields: Sequence[str] = (*_ClusterOperator.template_fields, "sql", "cluster", "database")
    template_ext: Sequence[str] = (".sql", ".hql")
    template_fields_renderers = {"sql": "sql"}

    def __init__(
        self,
        *,
        sql: str,
        cluster: str | None = None,
        database: str = "default",
        policy: Literal["strict", "default"] = "strict",
        check_files: bool = True,
        max_rows: int = 100,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.sql = sql
        self.cluster = cluster
        self.database = database
        self.policy = policy
        self.check_files = check_files
        self.max_rows = max_rows
        self._spark: SparkPipelineHook | None = None
        self._killed = False

    def execute(self, context: Context) -> list[dict[str, Any]]:
        from airflow_hive_federation.clusters.routing import Policy
        from airflow_hive_federation.clusters.running import LiveRouter, first_session

        with self._open() as (client, registry, options):
            router = LiveRouter(
                client=client,
                registry=registry,
                policy=Policy(self.policy),
                check_files=self.check_files,
                options=options,
            )
            session = first_session(registry, database=self.database, cluster=self.cluster)
            routes = []
            for routed in router.script(self.sql, session):
                self.log.info("%s", routed.explained())
                answer = self._run(routed, client, registry, options) if routed.runs else {}
                routes.append({**routed.to_json(), **answer})
            return routes

    def on_kill(self) -> None:
        """Kill the running Spark job."""
        self._killed = True
        if self._spark is not None:
            self._spark.on_kill()

    def _run(
        self,
        routed: RoutedStatement,
        client: MetastoreClient,
        registry: ClusterRegistry,
        options: dict[str, Any],
    ) -> dict[str, Any]:
        from airflow_hive_federation.clusters.acid_inputs import acid_inputs

        cluster = registry.cluster(routed.cluster)
        with ExitStack() as stack:
            uri = cluster.metastore
            if uri is None:
                from airflow_hive_federation.gateway.view_front import serving_view

                view = serving_view(
                    client.settings, registry, cluster, check_files=self.check_files, options=options
                )
                uri = stack.enter_context(view)
            acid = stack.enter_context(acid_inputs(client, routed.reads, cluster.name, options=options))
            script = stack.enter_context(routed.written(cluster, options, acid))
            self._spark = SparkPipelineHook(cluster.spark_conn_id, storage_options=options)
            if self._killed:
                self._spark.on_kill()
            return self._spark.submit(
                "run-sql",
                ["--statement", script, "--max-rows", str(self.max_rows)],
                name=f"hive-federation {self.task_id}",
                conf={
                    "spark.sql.catalogImplementation": "hive",
                    "spark.hadoop.hive.metastore.uris": uri,
                    "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
                    "spark.sql.warehouse.dir": cluster.root,
                },
                report_uri=f"{script.rpartition('/')[0]}/_report.json",
            )

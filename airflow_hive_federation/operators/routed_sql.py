"""Routes SQL statements among clusters, and runs them with Spark, in Airflow tasks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from airflow_hive_federation.errors import RoutingError
from airflow_hive_federation.hooks.page_links import SparkLink
from airflow_hive_federation.hooks.published_clusters import RoutesPublished
from airflow_hive_federation.hooks.spark import SparkPipelineHook
from airflow_hive_federation.operators.cluster_base import ClusterOperator
from airflow_hive_federation.operators.cluster_links import ROUTE, RouteLink, push, route_note, run_of
from airflow_hive_federation.operators.lineage import LineageOperator
from airflow_hive_federation.operators.lineage import routed as lineage_of
from airflow_hive_federation.operators.script_writes import ScriptWrites
from airflow_hive_federation.operators.spark_tasks import run_name
from airflow_hive_federation.runtime.arguments import flag

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.clusters.advice_history import HistoryWriter
    from airflow_hive_federation.clusters.registry import ClusterRegistry
    from airflow_hive_federation.clusters.routing.decision import Decision
    from airflow_hive_federation.clusters.running import RoutedScript, RoutedStatement
    from airflow_hive_federation.metastore import MetastoreClient
    from airflow_hive_federation.storage.options import StorageOptions


class RoutedSqlOperator(LineageOperator, ClusterOperator):
    """Runs SQL statements with Spark, each in the cluster that holds all the data it needs.

    Each statement is routed after the statements before it have ended. Spark reads every table at its
    location in that cluster, and creates new tables in that cluster. ``USE CLUSTER name`` fixes the cluster
    for the statements that follow; ``USE CLUSTER`` without a name ends that. Returns ``{"statements"}``, one
    route per statement, with ``cluster``, ``rule``, ``reason``, ``columns`` and ``rows``. The XCom
    ``route`` holds the routes in words, also that of a refused statement; the link of the task leads to it.

    A retry would run the script from its beginning, and write rows twice. So every failure after the first
    statement that writes is permanent. If a try is killed after that point, the next one fails, and names
    the tables. The one after it, which somebody has begun by clearing the task, runs the script again.

    :param sql: the statements, or the name of a file that holds them. (templated)
    :param cluster: the cluster of the first statements, as if by ``USE CLUSTER``. (templated)
    :param database: the current database of the first statements. (templated)
    :param policy: ``strict`` refuses statements whose tables are not known for certain; ``default`` runs
        them in the default cluster.
    :param check_files: list the files of primary and copy before a copy is used; see
        :class:`.clusters.running.LiveRouter`.
    :param max_rows: the most rows that are returned per query.
    :param history: the URI of the directory that records the statements, without their literals, for
        ``hive-federation cluster advise``; by default a directory below the root of the default cluster.
        (templated)
    :param record: record the statements.
    :param metastore_conn_id: the connection of the metastore. (templated)
    :param clusters: the registry: the path or URI of a JSON file, the name of an Airflow variable, or
        ``metastore`` for the metastore's own configuration. By default, it is the variable
        ``hive_federation_clusters``, or else the metastore's configuration. (templated)
    """

    template_fields: Sequence[str] = (
        *ClusterOperator.template_fields,
        "sql",
        "cluster",
        "database",
        "history",
    )
    operator_extra_links = (*ClusterOperator.operator_extra_links, RouteLink(), SparkLink())
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
        history: str | None = None,
        record: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.sql = sql
        self.cluster = cluster
        self.database = database
        self.policy = policy
        self.check_files = flag("check_files", check_files)
        self.max_rows = max_rows
        self.history = history
        self.record = flag("record", record)
        self._spark: SparkPipelineHook | None = None
        self._killed = False

    def perform(self, context: Context) -> RoutedScript:
        from airflow_hive_federation.clusters.advice_history import RecordingRouter
        from airflow_hive_federation.clusters.routing.decision import Decision
        from airflow_hive_federation.clusters.routing.explain import in_words
        from airflow_hive_federation.clusters.routing.route import Policy
        from airflow_hive_federation.clusters.running import RoutedScript, first_session
        from airflow_hive_federation.metastore import MetastorePool

        with self._open() as (client, registry, options):
            router = RecordingRouter(
                client=client,
                registry=registry,
                policy=Policy(self.policy),
                check_files=self.check_files,
                options=options,
                pool=partial(MetastorePool, client.settings),
                history=self._history(context, registry, options),
            )
            session = first_session(registry, database=self.database, cluster=self.cluster)
            ran: list[Decision] = []
            routes: list[dict[str, Any]] = []
            notes: list[dict[str, Any]] = []
            writes = ScriptWrites(self._record_of_writes(context, registry), options)
            with RoutesPublished(router, self.state(context), self.log) as published, writes.of_one_try():
                try:
                    for routed in router.script(self.sql, session):
                        self.log.info("%s", routed.explained())
                        notes.append(route_note(routed.decision))
                        push(context, ROUTE, notes)
                        published.note(routed.decision)
                        answer = {}
                        if routed.runs:
                            writes.begin(routed.decision)
                            answer = self._run(routed, client, registry, options)
                            ran.append(routed.decision)
                            self.lineage = lineage_of(client.settings, ran)
                        routes.append({**routed.to_json(), **answer})
                except RoutingError as error:
                    if isinstance(decision := error.facts.get("decision"), Decision):
                        self.log.info("%s", in_words(decision))
                        push(context, ROUTE, [*notes, route_note(decision, refused=error.message)])
                        published.note(decision, refused=error.message)
                    raise
            return RoutedScript(statements=routes)

    @staticmethod
    def _record_of_writes(context: Context, registry: ClusterRegistry) -> str | None:
        from airflow_hive_federation.clusters.notes import state_of
        from airflow_hive_federation.storage.filesystem import join

        name = run_name(context)
        return join(state_of(registry.default_cluster()), f"writes-{name}") if name else None

    def _history(
        self, context: Context, registry: ClusterRegistry, options: StorageOptions
    ) -> HistoryWriter | None:
        from airflow_hive_federation.clusters.advice_history import HistoryWriter, history_directory

        if not self.record:
            return None
        run, source = run_of(context)
        directory = history_directory(registry, self.history)
        return HistoryWriter(directory=directory, run=run, source=source, options=options)

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
        options: StorageOptions,
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

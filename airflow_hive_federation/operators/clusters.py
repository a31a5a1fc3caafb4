"""Clusters of one metastore, as Airflow tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_hive_federation.hooks.clusters import find_registry
from airflow_hive_federation.hooks.failing import as_airflow_error
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.spark import SparkPipelineHook

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.clusters.registry import ClusterRegistry
    from airflow_hive_federation.metastore import MetastoreClient


class _ClusterOperator(BaseOperator):
    """What all of them have in common.

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
    :param drop: drop the copies there instead.
    :param spark_conn_id: connection of the Spark that copies; by default that of the cluster. (templated)
    """

    template_fields: Sequence[str] = (
        *_ClusterOperator.template_fields,
        "table",
        "cluster",
        "partitions",
        "where",
        "spark_conn_id",
    )

    def __init__(
        self,
        *,
        table: str,
        cluster: str,
        partitions: Sequence[str] | None = None,
        where: str | None = None,
        drop: bool = False,
        spark_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.cluster = cluster
        self.partitions = partitions
        self.where = where
        self.drop = drop
        self.spark_conn_id = spark_conn_id
        self._spark: SparkPipelineHook | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_hive_federation.clusters.copies import copy_to_cluster, drop_copies

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
            return copy_to_cluster(client, registry, self.table, self.cluster, run_copy, **chosen).to_json()

    def on_kill(self) -> None:
        """Kill the copy job."""
        if self._spark is not None:
            self._spark.on_kill()

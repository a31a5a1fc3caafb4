"""Assigns, copies, moves and routes the tables of one metastore among clusters, in Airflow tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.error_translation import as_airflow_error
from airflow_hive_federation.hooks.page_links import SparkLink
from airflow_hive_federation.hooks.progress import task_observer
from airflow_hive_federation.hooks.published_clusters import table_of
from airflow_hive_federation.hooks.spark import SparkPipelineHook
from airflow_hive_federation.operators.cluster_base import ClusterOperator
from airflow_hive_federation.operators.cluster_links import (
    COPY,
    CopyLink,
    copy_note,
    push,
)
from airflow_hive_federation.progress.observers import spaced
from airflow_hive_federation.progress.quantities import several, size
from airflow_hive_federation.runtime.arguments import flag, refusal, texts

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.clusters.assignment import AssignReport
    from airflow_hive_federation.clusters.copies.copying import CopyReport
    from airflow_hive_federation.clusters.keeping import KeepReport
    from airflow_hive_federation.clusters.moving import MoveReport
    from airflow_hive_federation.clusters.primary import PrimaryReport

#: A hundred years.
_MOST_HOURS = 876_000


class AssignClusterOperator(ClusterOperator):
    """Makes a cluster the primary of all tables that have no primary yet. No data moves.

    Returns ``{"cluster", "undo", "dry_run", "changed", "unchanged", "elsewhere", "skipped"}``. If the task is
    interrupted, another run finishes it.

    :param cluster: the name of the cluster; the default cluster if ``None``. (templated)
    :param databases: the names of the databases; all databases if ``None``. (templated)
    :param undo: remove the tables from the cluster instead, except those that have copies.
    :param dry_run: write nothing, and report the tables that would be changed.
    :param metastore_conn_id: the connection of the metastore. (templated)
    :param clusters: the registry: the path or URI of a JSON file, the name of an Airflow variable, or
        ``metastore`` for the metastore's own configuration. By default, it is the variable
        ``hive_federation_clusters``, or else the metastore's configuration. (templated)
    """

    template_fields: Sequence[str] = (*ClusterOperator.template_fields, "cluster", "databases")

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
        self.undo = flag("undo", undo)
        self.only_report = flag("dry_run", dry_run)

    def perform(self, context: Context) -> AssignReport:
        from airflow_hive_federation.clusters.assignment import assign_tables

        with as_airflow_error():
            databases = None if self.databases is None else texts("databases", self.databases)
        with self._open() as (client, registry, _):
            report = assign_tables(
                client,
                registry,
                cluster=self.cluster,
                databases=databases,
                undo=self.undo,
                dry_run=self.only_report,
                observer=spaced(task_observer(self.log)),
            )
            self.state(context).assigned(report, registry)
        for name, reason in report.skipped.items():
            self.log.warning("%s is left as it is, because %s", name, reason)
        done = "removed from" if report.undo else "assigned to"
        self.log.info(
            "%s tables%s %s %s; %s unchanged, %s in other clusters, %s left as they are",
            len(report.changed),
            " would be" if report.dry_run else "",
            done,
            report.cluster,
            report.unchanged,
            len(report.elsewhere),
            len(report.skipped),
        )
        return report


class CopyToClusterOperator(ClusterOperator):
    """Copies a table, or partitions of it, to a secondary cluster, unless the copies there are up to date.

    Returns ``{"table", "cluster", "copied", "current", "files", "size_bytes", "removed", "left"}``; ``left``
    are the directories of replaced or dropped copies that stay for statements planned before, until
    ``hive-federation cluster sweep``. The XCom ``copy`` names the copy and its directory, and the link of the
    task leads to that XCom. If the task is interrupted, its next try continues the copy.

    :param table: the table, as ``database.table``. (templated)
    :param cluster: the cluster to copy to. (templated)
    :param partitions: names of partitions, ``day=2026-01-01``; all partitions if neither ``partitions`` nor
        ``where`` is given. (templated)
    :param where: a condition on partition keys, such as ``day >= '2026-01-01'``. (templated)
    :param move_from: copy only the objects that have copies in this cluster, and drop those copies
        afterwards: the copies move. The task then returns ``{"table", "from_cluster", "to_cluster",
        "moved", "files", "size_bytes", "removed", "left"}``. (templated)
    :param drop: drop the copies in ``cluster`` instead of making them.
    :param at_once: remove replaced and dropped copies now, although statements that were planned before may
        read them.
    :param spark_conn_id: the connection of the Spark that copies; by default the cluster's own. (templated)
    :param metastore_conn_id: the connection of the metastore. (templated)
    :param clusters: the registry: the path or URI of a JSON file, the name of an Airflow variable, or
        ``metastore`` for the metastore's own configuration. By default, it is the variable
        ``hive_federation_clusters``, or else the metastore's configuration. (templated)
    """

    template_fields: Sequence[str] = (
        *ClusterOperator.template_fields,
        "table",
        "cluster",
        "partitions",
        "where",
        "move_from",
        "spark_conn_id",
    )
    operator_extra_links = (*ClusterOperator.operator_extra_links, CopyLink(), SparkLink())

    def __init__(
        self,
        *,
        table: str,
        cluster: str,
        partitions: Sequence[str] | None = None,
        where: str | None = None,
        move_from: str | None = None,
        drop: bool = False,
        at_once: bool = False,
        spark_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.move_from = move_from
        self.table = table
        self.cluster = cluster
        self.partitions = partitions
        self.where = where
        self.drop = flag("drop", drop)
        self.at_once = flag("at_once", at_once)
        self.spark_conn_id = spark_conn_id
        self._spark: SparkPipelineHook | None = None

    def perform(self, context: Context) -> CopyReport | MoveReport:
        from airflow_hive_federation.clusters.copies.copying import copy_to_cluster, drop_copies
        from airflow_hive_federation.clusters.moving import move_copies

        with as_airflow_error():
            partitions = None if self.partitions is None else texts("partitions", self.partitions)
        with self._open() as (client, registry, options):
            chosen: dict[str, Any] = {
                "partitions": partitions,
                "where": self.where,
                "at_once": self.at_once,
                "options": options,
            }
            if self.drop:
                dropped = drop_copies(client, registry, self.table, self.cluster, **chosen)
                self.state(context).looked(client, registry, self.table)
                return dropped
            cluster = registry.cluster(self.cluster)
            self._spark = SparkPipelineHook(
                self.spark_conn_id or cluster.spark_conn_id, storage_options=options
            )
            run_copy = self._spark.copy_runner()
            if self.move_from is not None:
                clusters = self.move_from, self.cluster
                moved = move_copies(client, registry, self.table, *clusters, run_copy=run_copy, **chosen)
                self.state(context).looked(client, registry, self.table)
                return moved
            report = copy_to_cluster(client, registry, self.table, self.cluster, run_copy, **chosen)
            note = copy_note(report.table, cluster, report.copied, report.current)
            self.log.info(
                "%s has %s new copies in %s, below %s (%s, %s); %s were current",
                report.table,
                len(report.copied),
                cluster.name,
                note["directory"],
                several(report.files, "file"),
                size(report.size_bytes),
                len(report.current),
            )
            push(context, COPY, note)
            self.state(context).looked(client, registry, self.table)
            return report

    @property
    def worked_on(self) -> str:
        """Return the table."""
        return str(self.table)

    def on_kill(self) -> None:
        """Kill the copy job."""
        if self._spark is not None:
            self._spark.on_kill()


class KeepCopiesOperator(ClusterOperator):
    """Keeps copies in a secondary cluster current, by the metastore's notification events.

    A run compares the partitions that changed since the last run. It compares all partitions on the first
    run, if events are missing, if the rule has changed, and after ``compare_hours``. Returns ``{"rule",
    "because", "event", "looked_at", "copied", "files", "size_bytes", "removed", "left", "dropped"}``;
    ``because`` is the reason why all partitions were compared, ``dropped`` are the copies of partitions that
    have left the window, and ``left`` are the directories of dropped and replaced copies that stay for
    statements planned before. A run that compares all partitions removes them after a day. The XCom ``copy``
    names the copy and its directory. If the task is interrupted, its next try continues.

    :param rule: the rule, such as ``last 30 days of sales.orders in C2``, ``last 7 days of web.clicks by day
        in C2``, or ``all of sales.items in C2``. With ``dropping older`` at the end of a rule with days, runs
        that compare all partitions drop the copies of partitions before the window. (templated)
    :param compare_hours: hours after which all partitions are compared, whatever the events name: Spark
        writes files of its own tables without an event. (templated)
    :param spark_conn_id: the connection of the Spark that copies; by default the cluster's own. (templated)
    :param at_once: remove dropped and replaced copies now, although statements that were planned before may
        read them.
    :param metastore_conn_id: the connection of the metastore. (templated)
    :param clusters: the registry: the path or URI of a JSON file, the name of an Airflow variable, or
        ``metastore`` for the metastore's own configuration. By default, it is the variable
        ``hive_federation_clusters``, or else the metastore's configuration. (templated)
    """

    template_fields: Sequence[str] = (
        *ClusterOperator.template_fields,
        "rule",
        "compare_hours",
        "spark_conn_id",
    )
    operator_extra_links = (*ClusterOperator.operator_extra_links, CopyLink(), SparkLink())

    def __init__(
        self,
        *,
        rule: str,
        compare_hours: float | str = 24,
        spark_conn_id: str | None = None,
        at_once: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.rule = rule
        self.compare_hours = compare_hours
        self.spark_conn_id = spark_conn_id
        self.at_once = flag("at_once", at_once)
        self._spark: SparkPipelineHook | None = None

    def perform(self, context: Context) -> KeepReport:
        from airflow_hive_federation.clusters.keep_rules import read_rule
        from airflow_hive_federation.clusters.keeping import keep_current

        with as_airflow_error():
            compare_after = _hours(self.compare_hours)
        with self._open() as (client, registry, options):
            rule = read_rule(self.rule)
            cluster = registry.cluster(rule.cluster)
            self._spark = SparkPipelineHook(
                self.spark_conn_id or cluster.spark_conn_id, storage_options=options
            )
            report = keep_current(
                client,
                registry,
                rule,
                self._spark.copy_runner(),
                compare_after=compare_after,
                at_once=self.at_once,
                options=options,
            )
            self.log.info(
                "%s: looked at %s, made %s new copies (%s, %s), dropped %s",
                rule,
                report.looked_at,
                len(report.copied),
                several(report.files, "file"),
                size(report.size_bytes),
                len(report.dropped),
            )
            push(context, COPY, copy_note(rule.table, cluster, report.copied, None))
            state = self.state(context)
            # A look reads all partitions, which a run that follows events does not.
            if report.because or report.copied or report.dropped:
                state.looked(client, registry, rule.table)
            else:
                state.succeeded()
            return report

    @property
    def worked_on(self) -> str:
        """Return the table of the rule."""
        return table_of(str(self.rule))

    def on_kill(self) -> None:
        """Kill the copy job."""
        if self._spark is not None:
            self._spark.on_kill()


class ChangePrimaryOperator(ClusterOperator):
    """Makes a cluster the primary of a table; its copies of the table and of all partitions must be fresh.

    Returns ``{"table", "cluster", "former", "moved", "removed", "left"}``. If the task is
    interrupted, its next try finishes the change.

    :param table: the table, as ``database.table``. (templated)
    :param cluster: the secondary cluster that becomes the primary. (templated)
    :param keep_former: make the former primary a secondary; otherwise its files are removed, a day later by
        another run of this task or by ``hive-federation cluster sweep``.
    :param metastore_conn_id: the connection of the metastore. (templated)
    :param clusters: the registry: the path or URI of a JSON file, the name of an Airflow variable, or
        ``metastore`` for the metastore's own configuration. By default, it is the variable
        ``hive_federation_clusters``, or else the metastore's configuration. (templated)
    """

    template_fields: Sequence[str] = (*ClusterOperator.template_fields, "table", "cluster")

    def __init__(self, *, table: str, cluster: str, keep_former: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.cluster = cluster
        self.keep_former = flag("keep_former", keep_former)

    def perform(self, context: Context) -> PrimaryReport:
        from airflow_hive_federation.clusters.primary import change_primary

        with self._open() as (client, registry, options):
            report = change_primary(
                client, registry, self.table, self.cluster, keep_former=self.keep_former, options=options
            )
            self.state(context).looked(client, registry, self.table)
            return report

    @property
    def worked_on(self) -> str:
        """Return the table."""
        return str(self.table)


def _hours(hours: float | str) -> timedelta:
    """Return the time that ``compare_hours`` names.

    :raises ConfigurationError: it is no number of hours.
    """
    try:
        found = float(hours)
    except ValueError:
        found = math.nan
    except TypeError:
        raise refusal("compare_hours", hours, "Give a number of hours: 24.") from None
    if not 0 <= found <= _MOST_HOURS:
        raise ConfigurationError(
            f"The argument compare_hours is {hours!r}.",
            remedy=f"Give a number of hours from 0 to {_MOST_HOURS}.",
        )
    return timedelta(hours=found)

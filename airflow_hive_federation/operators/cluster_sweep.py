"""Sweeps the clusters of one metastore, in Airflow tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.operators.cluster_base import ClusterOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.clusters.sweeping import SweepReport


class SweepCopiesOperator(ClusterOperator):
    """Removes dropped and replaced copies in a cluster, and what killed runs have left there.

    Returns ``{"cluster", "removed", "used", "left"}``; ``left`` are the directories that stay, with the
    reasons. If the task is interrupted, its next try finishes the sweep. A damaged note fails the task after
    all others have been swept.

    :param cluster: the cluster to sweep. (templated)
    :param table: sweep only directories of this table, ``database.table``. (templated)
    :param statement_days: the age in days below which statements are left. (templated)
    :param former_days: the age in days below which former primaries, and dropped or replaced copies, are
        left, because statements that were planned before may read them. (templated)
    :param metastore_conn_id: the connection of the metastore. (templated)
    :param clusters: the registry: the path or URI of a JSON file, the name of an Airflow variable, or
        ``metastore`` for the metastore's own configuration. By default, it is the variable
        ``hive_federation_clusters``, or else the metastore's configuration. (templated)
    """

    template_fields: Sequence[str] = (
        *ClusterOperator.template_fields,
        "cluster",
        "table",
        "statement_days",
        "former_days",
    )

    def __init__(
        self,
        *,
        cluster: str,
        table: str | None = None,
        statement_days: float | str = 7,
        former_days: float | str = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cluster = cluster
        self.table = table
        self.statement_days = statement_days
        self.former_days = former_days

    def perform(self, context: Context) -> SweepReport:
        from airflow_hive_federation.clusters.sweeping import days_in_seconds, sweep_cluster

        with self._open() as (client, registry, options):
            report = sweep_cluster(
                client,
                registry,
                self.cluster,
                table=self.table,
                statements_older_than_s=days_in_seconds(self.statement_days),
                former_older_than_s=days_in_seconds(self.former_days),
                options=options,
            )
        for directory, reason in report.left.items():
            self.log.warning("%s is left as it is: %s", directory, reason)
        self.log.info("%s: removed %s directories", report.cluster, len(report.removed))
        return report

"""Looks at the tables of all clusters of one metastore, in Airflow tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.hooks.error_translation import as_airflow_error
from airflow_hive_federation.operators.cluster_base import ClusterOperator
from airflow_hive_federation.runtime.arguments import texts

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.clusters.look import ClusterStatus


class ClusterStatusOperator(ClusterOperator):
    """Publishes the clusters of each table, and the copies that are stale, for the page Hive federation.

    It reads the partitions of all tables of the databases, and changes nothing. Returns ``{"tables",
    "copies", "stale", "problems"}``: numbers of tables, of tables with copies and of tables with stale
    copies, and the tables whose cluster metadata cannot be read, with the reasons.

    :param databases: the names of the databases; all databases if ``None``. (templated)
    :param metastore_conn_id: the connection of the metastore. (templated)
    :param clusters: the registry: the path or URI of a JSON file, the name of an Airflow variable, or
        ``metastore`` for the metastore's own configuration. By default, it is the variable
        ``hive_federation_clusters``, or else the metastore's configuration. (templated)
    """

    template_fields: Sequence[str] = (*ClusterOperator.template_fields, "databases")

    def __init__(self, *, databases: Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.databases = databases

    def perform(self, context: Context) -> ClusterStatus:
        from airflow_hive_federation.clusters.look import look_at_clusters

        with as_airflow_error():
            databases = None if self.databases is None else texts("databases", self.databases)
        with self._open() as (client, registry, _):
            status = look_at_clusters(
                client, registry, databases, looked_at=self.state(context).looked_at_all
            )
        for name, reason in status.problems.items():
            self.log.warning("%s: %s", name, reason)
        self.log.info(
            "%s tables, %s of them with copies, %s of these stale", status.tables, status.copies, status.stale
        )
        return status

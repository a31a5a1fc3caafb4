"""The base of the operators of clusters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.hooks.clusters import find_registry
from airflow_hive_federation.hooks.error_translation import as_airflow_error
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.page_links import ClustersLink
from airflow_hive_federation.hooks.published import publisher_of
from airflow_hive_federation.hooks.published_clusters import ClusterStatePublished
from airflow_hive_federation.operators.results import ResultOperator

if TYPE_CHECKING:
    from airflow.sdk import BaseOperatorLink, Context

    from airflow_hive_federation.clusters.registry import ClusterRegistry
    from airflow_hive_federation.metastore import MetastoreClient
    from airflow_hive_federation.storage.options import StorageOptions


class ClusterOperator(ResultOperator):
    """Base of the operators of clusters.

    :param metastore_conn_id: the connection of the metastore. (templated)
    :param clusters: the registry: the path or URI of a JSON file, the name of an Airflow variable, or
        ``metastore`` for the metastore's own configuration; see :func:`.hooks.clusters.find_registry`.
        (templated)
    """

    template_fields: Sequence[str] = ("metastore_conn_id", "clusters")
    ui_color = "#e4f0dd"
    operator_extra_links: Sequence[BaseOperatorLink] = (ClustersLink(),)

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

    def watched(self, context: Context) -> AbstractContextManager[object]:
        """Publish the error with which a task on one table ends."""
        return self.state(context)

    def state(self, context: Context) -> ClusterStatePublished:
        """Return the publisher of what the task learns."""
        return ClusterStatePublished(
            self.log, metastore=self.metastore_conn_id, by=publisher_of(context), table=self.worked_on
        )

    @property
    def worked_on(self) -> str:
        """Return the table that the task works on, as ``database.table``; empty for several ones."""
        return ""

    @contextmanager
    def _open(self) -> Iterator[tuple[MetastoreClient, ClusterRegistry, StorageOptions]]:
        """Open the metastore, the registry, and the storage options of the connection."""
        hook = HiveMetastoreHook(self.metastore_conn_id)
        with as_airflow_error(), hook.client() as client:
            options = hook.storage_options
            yield client, find_registry(self.clusters, client, options), options

"""Serves a cluster's view of a metastore on this machine while a job runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_hive_federation.clusters.registry import Cluster, ClusterRegistry
from airflow_hive_federation.gateway.cluster_view import ClusterView
from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.thrift_front import ThriftFront
from airflow_hive_federation.gateway.thrift_settings import ThriftSettings
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.storage.options import StorageOptions


@contextmanager
def serving_view(
    settings: MetastoreSettings,
    registry: ClusterRegistry,
    cluster: Cluster,
    *,
    check_files: bool = True,
    options: StorageOptions | None = None,
) -> Iterator[str]:
    """Serve a cluster's view at a free port of the loopback address; yield its URI.

    Every process of this machine can call it; the metastore sees the user of these settings.

    :param settings: settings of the client for the metastore behind the view.
    :param cluster: the cluster whose engines use the view.
    :param check_files: see :class:`.cluster_view.ClusterView`.
    :param options: storage options of all clusters.
    """
    view = ClusterView(Metastore(Upstream("main", settings)), registry, cluster, check_files, options or {})
    front = ThriftFront(Gateway(view), ThriftSettings(port=0)).start()
    try:
        yield front.uri
    finally:
        front.stop()
        view.close()

"""Describes the package to Airflow (entry point ``apache_airflow_provider``)."""

from __future__ import annotations

from airflow_hive_federation import __version__
from airflow_hive_federation.hooks.connection_form import CONNECTION_TYPE

_PACKAGE = "airflow_hive_federation"


def get_provider_info() -> dict[str, object]:
    """Return the provider's metadata in the form of Airflow's ``provider_info`` schema."""
    return {
        "package-name": "airflow-hive-federation",
        "name": "Hive Federation",
        "description": "Federates Hive metastores and replicates Hive databases with Spark.",
        "versions": [__version__],
        "integrations": [
            {
                "integration-name": "Hive Federation",
                "external-doc-url": "https://hive.apache.org/",
                "tags": ["apache"],
            }
        ],
        "operators": [
            _modules(
                "operators.replication",
                "operators.replication_group",
                "operators.replications",
                "operators.failover",
                "operators.compaction",
                "operators.remote",
                "operators.ingest",
                "operators.clusters",
                "operators.cluster_sweep",
            )
        ],
        "sensors": [_modules("sensors.transactions", "sensors.remote", "sensors.replication")],
        "hooks": [_modules("hooks.metastore", "hooks.spark", "hooks.tunnel")],
        "triggers": [_modules("triggers.waiting", "triggers.remote", "triggers.replication")],
        "notifications": [f"{_PACKAGE}.notifications.replication.ReplicaNotifier"],
        "extra-links": [
            f"{_PACKAGE}.operators.cluster_links.RouteLink",
            f"{_PACKAGE}.operators.cluster_links.CopyLink",
        ],
        "connection-types": [CONNECTION_TYPE],
    }


def _modules(*names: str) -> dict[str, object]:
    return {
        "integration-name": "Hive Federation",
        "python-modules": [f"{_PACKAGE}.{name}" for name in names],
    }

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
                "operators.cluster_status",
                "operators.cluster_sweep",
                "operators.routed_sql",
            )
        ],
        "sensors": [_modules("sensors.transactions", "sensors.remote", "sensors.replication")],
        "hooks": [_modules("hooks.metastore", "hooks.spark", "hooks.tunnel")],
        "triggers": [_modules("triggers.waiting", "triggers.remote", "triggers.replication")],
        "notifications": [f"{_PACKAGE}.notifications.replication.ReplicaNotifier"],
        "extra-links": [
            f"{_PACKAGE}.operators.cluster_links.RouteLink",
            f"{_PACKAGE}.operators.cluster_links.CopyLink",
            *(f"{_PACKAGE}.hooks.page_links.{link}" for link in _PAGE_LINKS),
        ],
        "connection-types": [CONNECTION_TYPE],
        "plugins": [
            {
                "name": "hive_federation",
                "plugin-class": f"{_PACKAGE}.plugin.registration.HiveFederationPlugin",
            }
        ],
        "cli": [f"{_PACKAGE}.cli.airflow_command.get_commands"],
        "config": {"hive_federation": {"description": _CONFIG, "options": _OPTIONS}},
    }


_PAGE_LINKS = (
    "PolicyLink",
    "ReplicationLink",
    "RemotesLink",
    "ClustersLink",
    "WorkLink",
    "SparkLink",
    "DumpLink",
)
_APPLICATION_URL = (
    "URL of the web page of a Spark application, with {application} in place of its id, to which tasks link. "
    "By default, it is the tracking URL that YARN reports to spark-submit."
)
_CONFIG = "The state that tasks publish for the page Hive federation, and links of tasks."
_DIRECTORY = (
    "URI of the directory of the published state, on a store that workers, triggerers and API servers reach. "
    "By default it is the directory hive_federation_state in AIRFLOW_HOME."
)
_OPTIONS = {
    name: {
        "description": description,
        "version_added": __version__,
        "type": "string",
        "example": example,
        "default": "",
    }
    for name, description, example in (
        (
            "state_uri",
            _DIRECTORY,
            "s3://bucket/hive-federation-state",
        ),
        (
            "state_conn_id",
            "The connection of type hive_federation whose storage options the store of state_uri needs.",
            "hive_source",
        ),
        (
            "spark_application_url",
            _APPLICATION_URL,
            "https://history.example.com/history/{application}",
        ),
    )
}


def _modules(*names: str) -> dict[str, object]:
    return {
        "integration-name": "Hive Federation",
        "python-modules": [f"{_PACKAGE}.{name}" for name in names],
    }

"""Reads the registry of clusters for tasks and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hive_federation.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow_hive_federation.clusters.registry import ClusterRegistry
    from airflow_hive_federation.metastore import MetastoreClient
    from airflow_hive_federation.storage.options import StorageOptions

#: The Airflow variable that is read if no origin is named.
DEFAULT_VARIABLE = "hive_federation_clusters"
#: The origin that names the metastore's own configuration.
METASTORE = "metastore"


def is_variable(origin: str | None) -> bool:
    """Return whether an origin names an Airflow variable, and neither a file nor the metastore."""
    return origin != METASTORE and not _is_file(origin)


def _is_file(origin: str | None) -> bool:
    return origin is not None and ("/" in origin or origin.endswith(".json"))


def find_registry(
    origin: str | None, client: MetastoreClient, options: StorageOptions | None = None
) -> ClusterRegistry:
    """Read the registry of clusters.

    :param origin: the path or URI of a JSON file (it has a ``/`` or ends with ``.json``), ``metastore`` for
        the metastore's own configuration, or the name of an Airflow variable. By default the variable
        ``hive_federation_clusters``, and the metastore's configuration if that variable does not exist.
    :param options: the storage options for a file.
    :raises ClusterRegistryError: the value is no registry.
    :raises ConfigurationError: the variable does not exist.
    :raises StorageError: the file cannot be read.
    """
    from airflow_hive_federation.clusters.registry import (
        read_registry,
        registry_of_file,
        registry_of_metastore,
    )

    if origin is not None and _is_file(origin):
        return registry_of_file(origin, options)
    if is_variable(origin):
        # The command line calls this function too, and Airflow takes a second to import.
        from airflow.sdk import Variable

        text = Variable.get(origin or DEFAULT_VARIABLE, default=None)
        if text is not None:
            return read_registry(text, origin=f"the Airflow variable {origin or DEFAULT_VARIABLE}")
        if origin is not None:
            raise ConfigurationError(
                f"There is no Airflow variable {origin!r} with a registry of clusters.",
                remedy="Define it, write 'metastore', or give the path of a file with a '/', such as "
                "./clusters.json.",
            )
    return registry_of_metastore(client)

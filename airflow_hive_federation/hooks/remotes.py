"""Opens the remotes of a metastore that an Airflow connection names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.aws import session_arguments
from airflow_hive_federation.hooks.compat import AirflowNotFoundException, mask_secret
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_hive_federation.metastore import MetastoreSettings
    from airflow_hive_federation.remotes.session import Remotes


class AirflowConnections:
    """Airflow connections that the properties of remotes name."""

    def metastore(self, connection_id: str) -> MetastoreSettings:
        """Return the settings of a metastore, from a connection of type ``hive_federation``.

        :raises ConfigurationError: the connection does not exist.
        """
        _airflow_connection(connection_id)
        return HiveMetastoreHook(connection_id).settings

    def passphrase(self, connection_id: str) -> str | None:
        """Return the password of a connection.

        :raises ConfigurationError: the connection does not exist.
        """
        password: str | None = _airflow_connection(connection_id).password
        return password

    def session(self, connection_id: str) -> Mapping[str, Any]:
        """Return the arguments of a ``boto3`` session and an ``endpoint_url``, from an ``aws`` connection.

        :raises ConfigurationError: the connection does not exist, or needs the Amazon provider.
        """
        _airflow_connection(connection_id)
        return session_arguments(connection_id, "glue")

    def iceberg(self, connection_id: str) -> Mapping[str, str]:
        """Return the properties of an Iceberg catalog, from a connection of any type.

        The extras are pyiceberg's properties, ``type`` and ``warehouse`` for instance. The host is the
        catalog's ``uri``. User and password are its ``credential``, a password alone is its ``token``.

        :raises ConfigurationError: the connection does not exist.
        """
        connection = _airflow_connection(connection_id)
        properties = {str(name): str(value) for name, value in connection.extra_dejson.items() if value}
        if connection.host:
            properties.setdefault("uri", _uri(connection))
        if connection.password:
            credential = f"{connection.login}:{connection.password}"
            properties["credential" if connection.login else "token"] = (
                credential if connection.login else connection.password
            )
        for name in properties.keys() - {"type", "uri", "warehouse", "name"}:
            mask_secret(properties[name])
        return properties


def remotes_of(metastore_conn_id: str, *, database: str = "default") -> Remotes:
    """Return the remotes of a metastore; the caller closes them.

    :param metastore_conn_id: the connection of the local metastore.
    :param database: the current database.
    """
    from airflow_hive_federation.remotes.session import Remotes

    settings = HiveMetastoreHook(metastore_conn_id).settings
    return Remotes(settings, connections=AirflowConnections(), database=database)


def _uri(connection: Any) -> str:
    if "://" in connection.host:
        return str(connection.host)
    port = f":{connection.port}" if connection.port else ""
    return f"{connection.schema or 'https'}://{connection.host}{port}"


def _airflow_connection(connection_id: str) -> Connection:
    try:
        return BaseHook.get_connection(connection_id)
    except AirflowNotFoundException:
        raise ConfigurationError(
            f"There is no Airflow connection {connection_id!r}, which a remote's properties name.",
            remedy="Define it, or ALTER REMOTE … SET another.",
        ) from None

"""Replaces the names of Airflow connections in storage options by the credentials that they have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks import azure, google
from airflow_hive_federation.hooks.aws import AWS_CONNECTION, with_aws_credentials
from airflow_hive_federation.hooks.compat import AirflowNotFoundException

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_hive_federation.storage.options import StorageOptions, StorageValue


#: Storage option that names an Airflow connection of type ``adls`` or ``wasb``.
AZURE_CONNECTION = "azure_conn_id"
#: Storage option that names an Airflow connection of type ``google_cloud_platform``.
GOOGLE_CONNECTION = "gcp_conn_id"


def with_credentials(options: StorageOptions) -> dict[str, StorageValue]:
    """Replace options that name connections by those of drivers; of URI prefixes, in each one's options.

    Explicit options take precedence over those of a connection.

    :raises ConfigurationError: a connection does not exist, is of another type, has extras that are not read,
        or needs the Amazon provider; or options name connections of several stores.
    :raises StorageError: a role of AWS cannot be assumed.
    """
    resolved: dict[str, StorageValue] = {
        name: with_credentials(value) if isinstance(value, Mapping) else value
        for name, value in options.items()
    }
    named = [name for name in (AWS_CONNECTION, *_READERS) if resolved.get(name) is not None]
    if len(named) > 1:
        raise ConfigurationError(
            f"The storage options name connections of several stores: {', '.join(named)}.",
            remedy='Write them by URI prefix: {"gs://bucket": {"gcp_conn_id": "…"}}.',
        )
    if not named or named == [AWS_CONNECTION]:
        return with_aws_credentials(resolved)
    read = _READERS[named[0]]
    connection_id = str(resolved.pop(named[0]))
    return {**read(connection_id), **resolved}


def _of_azure(connection_id: str) -> Mapping[str, StorageValue]:
    connection = _connection(connection_id, azure.CONNECTION_TYPES)
    return azure.azure_options(connection, {name: str(value) for name, value in _extras(connection).items()})


def _of_google(connection_id: str) -> Mapping[str, StorageValue]:
    connection = _connection(connection_id, google.CONNECTION_TYPES)
    return google.google_options(connection, _extras(connection))


_READERS: dict[str, Callable[[str], Mapping[str, StorageValue]]] = {
    AZURE_CONNECTION: _of_azure,
    GOOGLE_CONNECTION: _of_google,
}


def _extras(connection: Connection) -> dict[str, object]:
    """Return the extras that have a value; older forms put the connection's type before their names."""
    prefix = f"extra__{connection.conn_type}__"
    extras: dict[str, object] = connection.extra_dejson
    return {name.removeprefix(prefix): value for name, value in extras.items() if value}


def _connection(connection_id: str, types: frozenset[str]) -> Connection:
    expected = " or ".join(sorted(types))
    try:
        connection = BaseHook.get_connection(connection_id)
    except AirflowNotFoundException:
        raise ConfigurationError(
            f"There is no Airflow connection {connection_id!r} of type {expected}.",
            remedy="Define it, or name another one.",
        ) from None
    if connection.conn_type not in types:
        raise ConfigurationError(
            f"The Airflow connection {connection_id!r} is of type {connection.conn_type}, not {expected}.",
            remedy="Name one of that type.",
            conn_id=connection_id,
        )
    return connection

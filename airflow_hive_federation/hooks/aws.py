"""Reads Airflow connections of type ``aws``, by the hook of the Amazon provider where that is installed.

The hook assumes roles, and renews their credentials. Without the provider a connection has keys, a profile or
the machine's own credentials; an extra that only the hook understands is refused.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.compat import AirflowNotFoundException, mask_secret

if TYPE_CHECKING:
    from airflow_hive_federation.storage.options import StorageOptions, StorageValue


#: Storage option that names an Airflow connection of type ``aws``.
AWS_CONNECTION = "aws_conn_id"
_HOOK = "airflow.providers.amazon.aws.hooks.base_aws"
_PROVIDER = "apache-airflow-providers-amazon"
#: Extras that are read without the provider's hook.
_PLAIN = frozenset({"aws_session_token", "region_name", "profile_name", "endpoint_url"})


def session_arguments(connection_id: str, service: str) -> dict[str, Any]:
    """Return the arguments of a ``boto3`` session, and the ``endpoint_url`` of a service.

    :param service: the service's name in botocore: ``glue``, ``s3``.
    :raises ConfigurationError: the connection does not exist, or needs the Amazon provider.
    """
    connection = _connection(connection_id)
    hooks = _providers_hooks()
    if hooks is None:
        return _plain_arguments(connection)
    hook = hooks.AwsGenericHook(aws_conn_id=connection_id, client_type=service)
    session = hook.get_session()
    arguments = {
        # Its credentials renew themselves.
        "botocore_session": session._session,  # noqa: SLF001 - boto3 has no name for it
        "region_name": session.region_name,
        "endpoint_url": hook.conn_config.get_service_endpoint_url(service),
    }
    return {name: value for name, value in arguments.items() if value}


def with_aws_credentials(options: StorageOptions) -> dict[str, StorageValue]:
    """Replace the option ``aws_conn_id`` by the options of s3fs; of URI prefixes, in each one's options.

    The credentials are those of the moment: those of a role expire with it, and the next task gets new ones.

    :raises ConfigurationError: a connection does not exist, or needs the Amazon provider.
    :raises StorageError: a role cannot be assumed.
    """
    resolved: dict[str, StorageValue] = {
        name: with_aws_credentials(value) if isinstance(value, Mapping) else value
        for name, value in options.items()
    }
    connection_id = resolved.pop(AWS_CONNECTION, None)
    if connection_id is None:
        return resolved
    made = _s3_options(str(connection_id))
    # Explicit options take precedence over those of the connection.
    given = resolved.pop("client_kwargs", {})
    client = {**made.pop("client_kwargs"), **(given if isinstance(given, Mapping) else {})}
    return {**made, **resolved, **({"client_kwargs": client} if client else {})}


def _s3_options(connection_id: str) -> dict[str, Any]:
    from airflow_hive_federation.storage.filesystem import storage_errors

    try:
        import boto3
    except ImportError as error:
        raise ConfigurationError(
            f"The storage option {AWS_CONNECTION} needs boto3.",
            remedy="pip install 'airflow-hive-federation[glue]', or give the store's keys.",
            conn_id=connection_id,
        ) from error

    arguments = session_arguments(connection_id, "s3")
    endpoint = arguments.pop("endpoint_url", None)
    with storage_errors(f"the connection {connection_id!r}"):
        session = boto3.Session(**arguments)
        credentials = session.get_credentials()
        present = None if credentials is None else credentials.get_frozen_credentials()
    if present is None:
        raise ConfigurationError(
            f"Connection {connection_id!r} has no credentials.",
            remedy="Set its keys, a profile or a role.",
            conn_id=connection_id,
        )
    for secret in (present.secret_key, present.token):
        if secret:
            mask_secret(secret)
    client = {"endpoint_url": endpoint, "region_name": session.region_name}
    options = {
        "key": present.access_key,
        "secret": present.secret_key,
        "token": present.token,
        "client_kwargs": {name: value for name, value in client.items() if value},
    }
    return {name: value for name, value in options.items() if value is not None}


def _plain_arguments(connection: Any) -> dict[str, Any]:
    extras = {name: value for name, value in connection.extra_dejson.items() if value}
    ignored = sorted(extras.keys() - _PLAIN)
    if ignored:
        raise ConfigurationError(
            f"Connection {connection.conn_id!r} has extras that only the Amazon provider's hook "
            f"understands: {', '.join(ignored)}.",
            remedy=f"pip install {_PROVIDER}, or remove them.",
            conn_id=connection.conn_id,
        )
    arguments = {
        "aws_access_key_id": connection.login,
        "aws_secret_access_key": connection.password,
        **extras,
    }
    return {name: value for name, value in arguments.items() if value}


def _providers_hooks() -> Any:
    try:
        return importlib.import_module(_HOOK)
    except ModuleNotFoundError as error:
        # A dependency of the provider that is missing is an error.
        if error.name and _HOOK.startswith(error.name):
            return None
        raise


def _connection(connection_id: str) -> Any:
    try:
        return BaseHook.get_connection(connection_id)
    except AirflowNotFoundException:
        raise ConfigurationError(
            f"There is no Airflow connection {connection_id!r} of type aws.",
            remedy="Define it, or name another one.",
        ) from None

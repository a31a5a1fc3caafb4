"""Reads Airflow connections of type ``adls`` and ``wasb``, which need no provider for it.

Their fields are those that ``AzureDataLakeStorageV2Hook`` and ``WasbHook`` of the Azure provider read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.compat import mask_secret

if TYPE_CHECKING:
    from airflow.sdk import Connection


#: Types of Airflow connections that have credentials of Azure's stores.
CONNECTION_TYPES = frozenset({"adls", "wasb"})
_EXTRAS = frozenset(
    {
        "connection_string",
        "tenant_id",
        "shared_access_key",
        "account_key",
        "sas_token",
        "account_name",
        "account_host",
    }
)
_SECRETS = ("connection_string", "account_key", "sas_token", "client_secret")
_STANDARD = ".core.windows.net"


def azure_options(connection: Connection, extras: dict[str, str]) -> dict[str, str]:
    """Return the options of adlfs for a connection.

    The first of these decides: a connection string; a tenant, with the client in ``login`` and its secret in
    ``password``; a shared access signature; a key, in an extra or ``password``. With none of them, adlfs has
    the identity of the machine.

    :param extras: the connection's extras that have a value.
    :raises ConfigurationError: an extra is unknown here, or the connection names no account.
    """
    unknown = sorted(extras.keys() - _EXTRAS)
    if unknown:
        raise ConfigurationError(
            f"Connection {connection.conn_id!r} has extras that are not read for a store: "
            f"{', '.join(unknown)}.",
            remedy="Remove them, or give the options of adlfs in secret_storage_options.",
            conn_id=connection.conn_id,
        )
    if "connection_string" in extras:
        options = {"connection_string": extras["connection_string"]}
    else:
        options = {**_account(connection, extras), **_credentials(connection, extras)}
    for name in _SECRETS:
        if options.get(name):
            mask_secret(options[name])
    return options


def _account(connection: Connection, extras: dict[str, str]) -> dict[str, str]:
    host = (connection.host or "").partition("://")[2] or connection.host or ""
    host = host.partition("/")[0]
    # The login of a service principal is its client.
    login = "" if "tenant_id" in extras else connection.login or ""
    name = extras.get("account_name") or host.partition(".")[0] or login
    if not name:
        raise ConfigurationError(
            f"Connection {connection.conn_id!r} names no storage account.",
            remedy="Set its host to the account's name or URL.",
            conn_id=connection.conn_id,
        )
    special = host.replace(".dfs.", ".blob.", 1) if "." in host and not host.endswith(_STANDARD) else ""
    account_host = extras.get("account_host") or special
    return {"account_name": name, **({"account_host": account_host} if account_host else {})}


def _credentials(connection: Connection, extras: dict[str, str]) -> dict[str, str]:
    if "tenant_id" in extras:
        principal = {
            "tenant_id": extras["tenant_id"],
            "client_id": connection.login or "",
            "client_secret": connection.password or "",
        }
        missing = [field for field, name in _PRINCIPAL if not principal[name]]
        if missing:
            raise ConfigurationError(
                f"Connection {connection.conn_id!r} has a tenant, and no {' and no '.join(missing)}.",
                remedy="Set login to the client's id and password to its secret.",
                conn_id=connection.conn_id,
            )
        return principal
    if "sas_token" in extras:
        # It may be the whole URL of the account.
        return {"sas_token": extras["sas_token"].rpartition("?")[2]}
    key = extras.get("shared_access_key") or extras.get("account_key") or connection.password
    return {"account_key": key} if key else {}


_PRINCIPAL = (("login", "client_id"), ("password", "client_secret"))

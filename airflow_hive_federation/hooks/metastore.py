"""Connects Airflow tasks to a Hive metastore."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_hive_federation.errors import ConfigurationError, HiveFederationError
from airflow_hive_federation.hooks.compat import mask_secret, redact
from airflow_hive_federation.hooks.connection_errors import naming
from airflow_hive_federation.hooks.connection_extras import CONN_TYPE, own_extras
from airflow_hive_federation.hooks.connection_form import field_behaviour, form_widgets
from airflow_hive_federation.hooks.store_connections import with_credentials
from airflow_hive_federation.hooks.tunnel import tunnel_settings

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from hmsclient import HMSClient

    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings
    from airflow_hive_federation.metastore.grpc_settings import GrpcSettings
    from airflow_hive_federation.metastore.settings import Authentication
    from airflow_hive_federation.storage.options import StorageOptions

#: Extras of the connection; any other is refused, so that a misspelt one is not silently ignored. Airflow
#: hides values in its UI, API and logs by the extra's name: the name of every secret extra contains a word
#: that Airflow knows (``secret``, ``token``, ``password``, ``authorization``).
EXTRAS = frozenset(
    {
        "uris",
        "transport",
        "catalog",
        "connect_timeout_s",
        "call_timeout_s",
        "max_answer_bytes",
        "tls_ca_file",
        "tls_cert_file",
        "tls_key_file",
        "tls_key_password",
        "kerberos_principal",
        "kerberos_client_principal",
        "kerberos_keytab",
        "delegation_token",
        "http_path",
        "http_bearer_token",
        "http_headers",
        "ssh_route",
        "ssh_key_files",
        "ssh_known_hosts",
        "ssh_timeout_s",
        "ssh_passphrase",
        "storage_options",
        "secret_storage_options",
        "grpc_plaintext",
        "grpc_token",
        "grpc_jwt_file",
        "grpc_keyfile",
        "grpc_audience",
        "grpc_cluster",
        "client_class",
    }
)
#: Extras that are JSON objects, or texts of JSON objects; all others are texts or numbers.
_OBJECTS = frozenset({"http_headers", "storage_options", "secret_storage_options"})
TRANSPORTS = ("thrift", "thrift+tls", "http", "https", "grpc", "grpc+tls")

#: Names of secret storage options that Airflow does not recognise as secrets.
_SECRET_NAMES = frozenset({"account_key", "credential", "credentials", "sas", "session", "connection_string"})
#: The test button's limit in seconds per call, whatever timeout the connection has.
_TEST_TIMEOUT_S = 15.0


class HiveMetastoreHook(BaseHook):
    """Connects to a Hive metastore with a connection of type ``hive_federation``.

    :param metastore_conn_id: the id of the connection. Host and port name one metastore; the extra ``uris``
        names several, separated by commas. The client begins with a random one, and takes the next one on
        failure.
    """

    conn_name_attr = "metastore_conn_id"
    default_conn_name = "hive_federation_default"
    conn_type = CONN_TYPE
    hook_name = "Hive metastore (federation)"

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, object]:
        """Return the fields of the form, for Airflow 3.1; later versions read the provider's metadata."""
        return form_widgets()

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, object]:
        """Return labels and placeholders of the form, for Airflow 3.1; later versions read the metadata."""
        return field_behaviour()

    def __init__(self, metastore_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.metastore_conn_id = metastore_conn_id

    @cached_property
    def settings(self) -> MetastoreSettings:
        """The settings of the client.

        :raises ConfigurationError: the connection names no metastore, has an unknown extra, or has an extra
            with an impossible value; ``conn_id`` names the connection, and ``field`` the field if it is one.
        """
        return settings_from_connection(self._connection)

    @cached_property
    def storage_options(self) -> StorageOptions:
        """Options for the (fsspec) file systems that hold this metastore's tables, secret options included.

        Options that name connections, as ``aws_conn_id`` does, have become the credentials of these.

        :raises ConfigurationError: they are no JSON objects, the visible extra contains a secret, or a
            connection that they name cannot be read, see :func:`.store_connections.with_credentials`.
        """
        return with_credentials(self.written_storage_options)

    @cached_property
    def written_storage_options(self) -> StorageOptions:
        """The storage options as the connection has them.

        :raises ConfigurationError: they are no JSON objects, or the visible extra contains a secret.
        """
        return storage_options_from_connection(self._connection)

    def client(self) -> MetastoreClient:
        """Return a client of the whole Hive 4 interface, which connects on its first call."""
        from airflow_hive_federation.metastore import MetastoreClient

        return MetastoreClient(self.settings)

    def pool(self, size: int = 4) -> MetastorePool:
        """Return a pool of ``size`` such clients, for work in threads."""
        from airflow_hive_federation.metastore import MetastorePool

        return MetastorePool(self.settings, size)

    def get_conn(self) -> HMSClient:
        """Return a connected ``hmsclient.HMSClient``, as Airflow's Hive provider does, over our transport."""
        from airflow_hive_federation.metastore import hms_client

        return hms_client(self.settings)

    def test_connection(self) -> tuple[bool, str]:
        """Return the result of the form's test button: success, version and the findings of ``doctor``."""
        from dataclasses import replace

        from airflow_hive_federation.metastore import MetastoreClient, examine

        try:
            patience_s = min(self.settings.call_timeout_s, _TEST_TIMEOUT_S)
            _ = self.storage_options
            with MetastoreClient(replace(self.settings, call_timeout_s=patience_s)) as client:
                count = len(client.list_databases())
                version = client.call("getVersion")
                wrong = [finding for finding in examine(client) if finding.state in {"warning", "error"}]
        except HiveFederationError as error:
            return False, str(error)
        answer = f"Hive metastore {version}: {count} database{'' if count == 1 else 's'}."
        return True, " ".join(
            [answer, *(f"{flaw.state.title()}, {flaw.name}: {flaw.detail}." for flaw in wrong)]
        )

    @cached_property
    def _connection(self) -> Connection:
        return self.get_connection(self.metastore_conn_id)


def settings_from_connection(connection: Connection) -> MetastoreSettings:
    """Translate an Airflow connection into settings of the client.

    :raises ConfigurationError: see :attr:`HiveMetastoreHook.settings`.
    """
    from airflow_hive_federation.metastore import MetastoreSettings, TlsSettings

    extras = _texts(connection)
    optional: dict[str, Any] = {
        name: _seconds(connection, name, extras[name])
        for name in ("connect_timeout_s", "call_timeout_s")
        if name in extras
    }
    if "max_answer_bytes" in extras:
        optional["max_answer_bytes"] = _bytes(connection, extras["max_answer_bytes"])
    tls: dict[str, Any] = {
        name: extras[f"tls_{name}"]
        for name in ("ca_file", "cert_file", "key_file", "key_password")
        if f"tls_{name}" in extras
    }
    if tls:
        optional["tls"] = TlsSettings(**tls)
    if (route := tunnel_settings(connection.conn_id, extras)) is not None:
        from airflow_hive_federation.tunnel.tunnel import Tunnel

        optional["dialer"] = Tunnel(route)
    if (grpc := _grpc(connection, extras)) is not None:
        optional["grpc"] = grpc
    if "client_class" in extras:
        optional["client_class"] = extras["client_class"]
    place = "uris" if extras.get("uris") else "host"
    with naming(connection.conn_id, fields={"uris": place, "user": "login"}):
        return MetastoreSettings(
            uris=_uris(connection, extras),
            user=connection.login or None,
            catalog=extras.get("catalog", "hive"),
            http_headers=_headers(connection, extras),
            authentication=_authentication(connection, extras),
            **optional,
        )


def storage_options_from_connection(connection: Connection) -> StorageOptions:
    """Merge the extras ``storage_options`` and ``secret_storage_options``, each a JSON object or its text.

    :raises ConfigurationError: see :attr:`HiveMetastoreHook.written_storage_options`.
    """
    shown = _json_object(connection, "storage_options")
    exposed = sorted(_secrets_among(shown))
    if exposed:
        raise ConfigurationError(
            f"Connection {connection.conn_id!r} has secrets in the visible extra 'storage_options': "
            f"{', '.join(exposed)}.",
            remedy="Move them to the extra 'secret_storage_options'.",
            conn_id=connection.conn_id,
        )
    hidden = _json_object(connection, "secret_storage_options")
    _mask(hidden)
    merged = {**shown, **hidden}
    for key in shown.keys() & hidden.keys():
        # Options by URI prefix are merged per prefix.
        if isinstance(shown[key], Mapping) and isinstance(hidden[key], Mapping):
            merged[key] = {**shown[key], **hidden[key]}
    return merged


def common_storage_options(source: HiveMetastoreHook, target: HiveMetastoreHook) -> StorageOptions:
    """Return the storage options of both ends of a replication, for work that reads one and writes the other.

    :raises ConfigurationError: they differ and are not separated by URI prefix.
    """
    return merged_storage_options(
        (source.metastore_conn_id, source.written_storage_options),
        (target.metastore_conn_id, target.written_storage_options),
    )


def merged_storage_options(
    source: tuple[str, Mapping[str, Any]], target: tuple[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Merge the storage options of two connections, as each has them, with the ids of the connections.

    Credentials of named connections come in last: a role gives others each time that it is assumed.

    :raises ConfigurationError: see :func:`common_storage_options`.
    """
    first, second = source[1], target[1]
    clashing = [key for key in first.keys() & second.keys() if first[key] != second[key]]
    everything = [*first.items(), *second.items()]
    by_uri = all(":" in key and isinstance(value, Mapping) for key, value in everything)
    if first and second and first != second and (clashing or not by_uri):
        raise ConfigurationError(
            f"Connections {source[0]!r} and {target[0]!r} have different storage options, and both sides are "
            "read and written by one job.",
            remedy='Write them by URI prefix: {"s3://bucket": {"endpoint_url": "…"}}.',
        )
    return with_credentials({**second, **first})


def _known_extras(connection: Connection) -> dict[str, object]:
    """Return the extras that have a value, because the form sends empty ones as well."""
    extras = own_extras(connection)
    unknown = sorted(set(extras) - EXTRAS)
    if unknown:
        raise ConfigurationError(
            f"Connection {connection.conn_id!r} has extras that are not known: {', '.join(unknown)}.",
            remedy=f"Known extras are {', '.join(sorted(EXTRAS))}.",
            conn_id=connection.conn_id,
        )
    return {name: value for name, value in extras.items() if value not in (None, "", {})}


def _texts(connection: Connection) -> dict[str, str]:
    """Return the extras that are texts; a number becomes one."""
    extras = {name: value for name, value in _known_extras(connection).items() if name not in _OBJECTS}
    for name, value in extras.items():
        if not isinstance(value, str | int | float):
            raise ConfigurationError(
                f"Connection {connection.conn_id!r}: the extra {name!r} is neither a text nor a number.",
                remedy="Write it as a text; commas separate several values.",
                conn_id=connection.conn_id,
            )
    return {name: str(value) for name, value in extras.items()}


def _authentication(connection: Connection, extras: Mapping[str, str]) -> Authentication | None:
    from airflow_hive_federation.metastore import DelegationTokenSettings, KerberosSettings, PlainSettings

    kerberos = {name: value for name, value in extras.items() if name.startswith("kerberos_")}
    conn_id = connection.conn_id
    if connection.password and (kerberos or not connection.login):
        raise ConfigurationError(
            f"Connection {conn_id!r} has a password and "
            + ("extras of Kerberos." if kerberos else "no user."),
            remedy="Give user and password, or Kerberos' principals and keytab.",
            conn_id=conn_id,
        )
    if token := extras.get("delegation_token"):
        mask_secret(token)
        if kerberos or connection.password:
            raise ConfigurationError(
                f"Connection {conn_id!r} has a delegation token and another authentication.",
                remedy="Give the token alone: it stands for the principal that obtained it.",
                conn_id=conn_id,
            )
        with naming(conn_id, "delegation_token"):
            return DelegationTokenSettings(token=token)
    if connection.password:
        mask_secret(connection.password)
        return PlainSettings(user=connection.login or "", password=connection.password)
    if kerberos and "kerberos_principal" not in kerberos:
        raise ConfigurationError(
            f"Connection {conn_id!r} has no Kerberos principal of the server.",
            remedy="Set kerberos_principal as hive-site.xml has it: hive/_HOST@EXAMPLE.COM.",
            conn_id=conn_id,
        )
    if not kerberos:
        return None
    with naming(conn_id, "kerberos_principal"):
        return KerberosSettings(
            server_principal=kerberos["kerberos_principal"],
            client_principal=kerberos.get("kerberos_client_principal"),
            keytab=kerberos.get("kerberos_keytab"),
        )


def _grpc(connection: Connection, extras: Mapping[str, str]) -> GrpcSettings | None:
    from airflow_hive_federation.metastore.grpc_settings import GrpcSettings

    names = {
        "grpc_token": "token",
        "grpc_jwt_file": "token_file",
        "grpc_keyfile": "service_account_keyfile",
        "grpc_audience": "audience",
        "grpc_cluster": "cluster",
    }
    given: dict[str, Any] = {argument: extras[name] for name, argument in names.items() if name in extras}
    if "grpc_token" in extras:
        mask_secret(extras["grpc_token"])
    if "grpc_plaintext" in extras:
        plaintext = extras["grpc_plaintext"].lower()
        if plaintext not in {"true", "false"}:
            raise ConfigurationError(
                f"Connection {connection.conn_id!r}: the extra 'grpc_plaintext' is {plaintext!r}.",
                remedy="Write true or false.",
                conn_id=connection.conn_id,
            )
        if plaintext == "true":
            given["plaintext"] = True
    with naming(connection.conn_id):
        return GrpcSettings(**given) if given else None


def _seconds(connection: Connection, name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ConfigurationError(
            f"Connection {connection.conn_id!r}: the extra {name!r} is {value!r}, which is no number.",
            remedy="Give seconds.",
            conn_id=connection.conn_id,
        ) from None


def _bytes(connection: Connection, value: str) -> int:
    text = value.strip().removesuffix(".0")
    if not text.isdecimal():
        raise ConfigurationError(
            f"Connection {connection.conn_id!r}: the extra 'max_answer_bytes' is {value!r}, "
            "which is no number of bytes.",
            remedy="Give a whole number above 0: 536870912 for 512 MiB.",
            conn_id=connection.conn_id,
        )
    return int(text)


def _json_object(connection: Connection, name: str) -> dict[str, Any]:
    value = _known_extras(connection).get(name, {})
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            # The text itself may hold secrets: the error repeats neither the text nor the parser's message.
            value = None
    if not isinstance(value, Mapping):
        raise ConfigurationError(
            f"Connection {connection.conn_id!r}: the extra {name!r} is no JSON object.",
            remedy='Write it as {"name": "value"}.',
            conn_id=connection.conn_id,
        )
    return dict(value)


def _headers(connection: Connection, extras: Mapping[str, str]) -> dict[str, str]:
    headers = _json_object(connection, "http_headers")
    _mask(headers)
    if "http_bearer_token" in extras:
        mask_secret(extras["http_bearer_token"])
        headers["Authorization"] = f"Bearer {extras['http_bearer_token']}"
    if headers and not any(uri.startswith("http") for uri in _uris(connection, extras)):
        raise ConfigurationError(
            f"Connection {connection.conn_id!r} has HTTP headers or a bearer token, which the transport of "
            "its URIs does not carry.",
            remedy="Use https:// URIs or the transport 'https', or remove them.",
            conn_id=connection.conn_id,
        )
    return {name: str(value) for name, value in headers.items()}


def _secrets_among(options: StorageOptions) -> set[str]:
    """Return the names of options that Airflow or this package treats as secrets, also below URI prefixes."""
    secrets = set()
    for name, value in options.items():
        if isinstance(value, Mapping):
            secrets |= _secrets_among(value)
        elif name.lower() in _SECRET_NAMES or (isinstance(value, str) and redact(value, name) == "***"):
            secrets.add(name)
    return secrets


def _mask(values: object) -> None:
    """Mask every text among the values in logs, whatever its name."""
    if isinstance(values, Mapping):
        for value in values.values():
            _mask(value)
    elif isinstance(values, list):
        for value in values:
            _mask(value)
    elif isinstance(values, str):
        mask_secret(values)


def _uris(connection: Connection, extras: Mapping[str, str]) -> tuple[str, ...]:
    uris = tuple(uri.strip() for uri in extras.get("uris", "").split(",") if uri.strip())
    if uris:
        return uris
    if not connection.host:
        raise ConfigurationError(
            f"Connection {connection.conn_id!r} names no metastore.",
            remedy="Set host and port, or the extra 'uris'.",
            conn_id=connection.conn_id,
        )
    host = connection.host
    if "@" in host or "," in host:
        # The error does not repeat the host, which may hold a password.
        raise ConfigurationError(
            f"Connection {connection.conn_id!r}: the host names "
            + ("a user before the server." if "@" in host else "several servers."),
            remedy="Give the user as login; write several servers as URIs into the extra 'uris'.",
            conn_id=connection.conn_id,
            field="host",
        )
    scheme = extras.get("transport") or connection.schema or "thrift"
    if "://" in host:
        scheme, _, host = host.partition("://")
    if scheme not in TRANSPORTS:
        raise ConfigurationError(
            f"Connection {connection.conn_id!r} has the transport {scheme!r}, which is not known.",
            remedy=f"Known are {', '.join(TRANSPORTS)}.",
            conn_id=connection.conn_id,
        )
    host, slash, path = host.partition("/")
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"
    port = f":{connection.port}" if connection.port else ""
    if scheme.startswith("http") and not slash:
        slash, path = "/", extras.get("http_path", "metastore").lstrip("/")
    return (f"{scheme}://{host}{port}{slash}{path}",)

"""The section ``[upstream]`` of the gateway's file: a metastore, and the transport to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.dispatch import Metastore
from airflow_hive_federation.gateway.old_clients import Capability
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore.grpc_settings import DEFAULT_AUDIENCE, GrpcSettings
from airflow_hive_federation.metastore.message_bounds import MAX_MESSAGE_BYTES
from airflow_hive_federation.metastore.settings import (
    KerberosSettings,
    MetastoreSettings,
    PlainSettings,
    TlsSettings,
)
from airflow_hive_federation.tunnel.route import KNOWN_HOSTS, TunnelSettings, parse_route

if TYPE_CHECKING:
    from airflow_hive_federation.tunnel.tunnel import Tunnel

#: Turns the id of an Airflow connection, or comma-separated URIs, into settings of the metastore client.
Resolve = Callable[[str], MetastoreSettings]

#: Keys of ``[upstream]`` that count beside a connection, which has the transport and the authentication.
_BESIDE_CONNECTION = frozenset(
    {
        *("uris", "connection", "read_only_uris", "user", "impersonate", "old_client_capabilities"),
        *("max_connections", "idle_s", "cluster"),
    }
)


@dataclass(frozen=True, kw_only=True)
class UpstreamSection:
    """A metastore behind the gateway (``[upstream]``).

    :param uris: the metastore's URIs, of any scheme that the metastore client supports.
    :param connection: id of an Airflow connection, in place of the URIs. It has all settings of transport and
        authentication, so that those of this section are refused beside it.
    :param read_only_uris: URIs for calls that only read, except calls about transactions and events; they use
        the same transport and authentication as ``uris``.
    :param user: name of the gateway's own user at the metastore; by default, the operating system's user.
    :param catalog: the metastore's own Hive catalog, of calls that name none; rules about some databases are
        about those of this catalog.
    :param impersonate: the metastore trusts the gateway, which passes each caller's name by ``set_ugi``.
    :param old_client_capabilities: Hive's names of capabilities, such as ``HIVEFULLACIDWRITE``. The gateway
        sends them for clients of Hive 2 and 3, whose calls that create a table cannot carry them.
    :param max_connections: greatest number of open connections.
    :param idle_s: seconds after which the gateway closes an unused connection.
    :param connect_timeout_s: seconds to connect to one URI.
    :param max_answer_bytes: size of the longest answer that the gateway accepts.
    :param ca_file: PEM file of the authorities to trust; with it or ``cert_file``, ``thrift://`` uses TLS.
    :param cert_file: PEM file of the gateway's certificate as a client.
    :param key_file: PEM file of the certificate's key.
    :param bearer_token_file: file with a token that the gateway sends with each HTTP request or gRPC call.
    :param service_account_keyfile: JSON key file of the service account with which the gateway authenticates
        to a metastore over gRPC (``metastore.grpc.service.account.keyfile`` in the design of the gRPC
        metastore).
    :param audience: audience of that account's tokens.
    :param cluster: cluster that the gateway behind ``grpc://`` URIs shows to this one.
    :param password_file: file with the password of ``user`` (SASL PLAIN).
    :param kerberos_principal: the metastore's principal, ``hive/_HOST@EXAMPLE.COM``.
    :param client_principal: the gateway's principal.
    :param keytab: file with the keys of the gateway's principal.
    :param ssh_route: the SSH hops, ``user@host[:port] -> user@host…``, in any number.
    :param ssh_private_keys: files of private keys: one per hop, or one for all hops.
    :param ssh_known_hosts: files of known host keys.
    """

    uris: tuple[str, ...] = ()
    connection: str | None = None
    read_only_uris: tuple[str, ...] = ()
    user: str | None = None
    catalog: str = "hive"
    impersonate: bool = False
    old_client_capabilities: tuple[Capability, ...] = ()
    max_connections: int = 64
    idle_s: float = 300.0
    connect_timeout_s: float = 10.0
    max_answer_bytes: int = MAX_MESSAGE_BYTES
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    bearer_token_file: str | None = None
    service_account_keyfile: str | None = None
    audience: str = DEFAULT_AUDIENCE
    cluster: str | None = None
    password_file: str | None = None
    kerberos_principal: str | None = None
    client_principal: str | None = None
    keytab: str | None = None
    ssh_route: str | None = None
    ssh_private_keys: tuple[str, ...] = ()
    ssh_known_hosts: tuple[str, ...] = (KNOWN_HOSTS,)

    def settings(self, resolve: Resolve) -> MetastoreSettings:
        """Return the settings of the metastore client.

        :raises ConfigurationError: the section has both URIs and a connection, or neither, or a connection
            and what that has itself; or a file cannot be read.
        """
        if bool(self.uris) == bool(self.connection):
            raise ConfigurationError(
                "[upstream] needs URIs or a connection, and not both.",
                remedy='Write uris = ["thrift://host:9083"].',
            )
        if self.connection is not None:
            self._refuse_settings_of_connection()
            settings = resolve(self.connection)
            if self.cluster is not None:
                settings = replace(settings, grpc=replace(settings.grpc, cluster=self.cluster))
            return settings if self.user is None else replace(settings, user=self.user)
        if self.service_account_keyfile is not None and not self._over_grpc:
            raise ConfigurationError(
                "[upstream] has the key file of a service account (service_account_keyfile, or "
                "metastore.grpc.service.account.keyfile of [properties]), and no URI is grpc://.",
                remedy="Leave the key file out, or give the URI of a gateway that wants its tokens.",
            )
        return MetastoreSettings(
            uris=self.uris,
            tls=self._tls(),
            authentication=self._authentication(),
            http_headers={} if self._over_grpc else self._headers(),
            grpc=self._grpc(),
            user=self.user,
            catalog=self.catalog,
            connect_timeout_s=self.connect_timeout_s,
            max_answer_bytes=self.max_answer_bytes,
            dialer=self._tunnel(),
        )

    def metastore(self, name: str, resolve: Resolve) -> Metastore:
        """Return the target that sends calls to this metastore.

        :raises ConfigurationError: as :meth:`settings`, or the metastore would not see the callers' names.
        """
        settings = self.settings(resolve)
        if self.impersonate:
            _refuse_own_identity(name, settings, self.read_only_uris)
        options: dict[str, Any] = {
            "impersonate": self.impersonate,
            "max_connections": self.max_connections,
            "idle_s": self.idle_s,
        }
        reading = None
        if self.read_only_uris:
            reading = Upstream(f"{name}, read-only", replace(settings, uris=self.read_only_uris), **options)
        return Metastore(
            Upstream(name, settings, **options),
            reading,
            old_client_capabilities=[capability.value for capability in self.old_client_capabilities],
        )

    def _tls(self) -> TlsSettings | None:
        if self.ca_file is None and self.cert_file is None:
            return None
        return TlsSettings(ca_file=self.ca_file, cert_file=self.cert_file, key_file=self.key_file)

    def _authentication(self) -> KerberosSettings | PlainSettings | None:
        if self.kerberos_principal is not None:
            return KerberosSettings(
                server_principal=self.kerberos_principal,
                client_principal=self.client_principal,
                keytab=self.keytab,
            )
        if self.password_file is None:
            return None
        if self.user is None:
            raise ConfigurationError("[upstream] has a password_file and no user.", remedy="Add user.")
        return PlainSettings(user=self.user, password=_secret(self.password_file))

    def _headers(self) -> dict[str, str]:
        if self.bearer_token_file is None:
            return {}
        return {"Authorization": f"Bearer {_secret(self.bearer_token_file)}"}

    @property
    def _over_grpc(self) -> bool:
        return all(uri.startswith("grpc") for uri in self.uris)

    def _grpc(self) -> GrpcSettings:
        return GrpcSettings(
            token_file=self.bearer_token_file if self._over_grpc else None,
            service_account_keyfile=self.service_account_keyfile,
            audience=self.audience,
            cluster=self.cluster,
        )

    def _refuse_settings_of_connection(self) -> None:
        """Refuse what the connection has itself: somebody might rely on TLS that would not be used."""
        given = [
            field.name
            for field in fields(self)
            if field.name not in _BESIDE_CONNECTION and getattr(self, field.name) != field.default
        ]
        if given:
            raise ConfigurationError(
                f"[upstream] has the connection {self.connection}, and {', '.join(given)}.",
                remedy="Give them as extras of the connection (tls_ca_file, grpc_keyfile, …), or write uris "
                "in its place.",
            )

    def _tunnel(self) -> Tunnel | None:
        if self.ssh_route is None:
            return None
        from airflow_hive_federation.tunnel.tunnel import Tunnel

        hops = parse_route(self.ssh_route, self.ssh_private_keys)
        return Tunnel(TunnelSettings(hops=hops, known_hosts=self.ssh_known_hosts))


def _refuse_own_identity(name: str, settings: MetastoreSettings, more_uris: tuple[str, ...]) -> None:
    """Refuse credentials by which a metastore knows the gateway's own user, and takes no other name from it.

    :param more_uris: URIs to which the same credentials go.
    """
    endpoints = replace(settings, uris=(*settings.uris, *more_uris)).endpoints()
    over_grpc = any(endpoint.is_grpc for endpoint in endpoints)
    over_http = any(endpoint.is_http for endpoint in endpoints)
    has_header = any(header.lower() == "authorization" for header in settings.http_headers)
    has_certificate = settings.tls is not None and settings.tls.cert_file is not None
    reasons = {
        "SASL (Kerberos, a password or a delegation token)": settings.authentication is not None,
        "a bearer token": over_http and has_header,
        "a token or a service account": over_grpc and settings.grpc.has_token,
        "the gateway's certificate": over_grpc and has_certificate,
    }
    for credential, is_sent in reasons.items():
        if is_sent:
            raise ConfigurationError(
                f"The metastore {name} has impersonate = true, but it knows its clients by {credential}, and "
                "would take every caller for the gateway's own user.",
                remedy="Leave impersonate out and let rules decide, or reach the metastore by Thrift "
                "(set_ugi), HTTP or gRPC without these credentials.",
            )


def _secret(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigurationError(
            f"The secret in {path} cannot be read: {error}.", remedy="Give a readable file."
        ) from error

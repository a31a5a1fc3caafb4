"""Reads the gateway's TOML file: its fronts, the metastores behind them, rules and names of databases."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from airflow_hive_federation.clusters.registry import registry_of_file
from airflow_hive_federation.errors import ClusterError, ConfigurationError
from airflow_hive_federation.gateway.cluster_view import ClusterView
from airflow_hive_federation.gateway.dispatch import Metastore
from airflow_hive_federation.gateway.federation.metastores import Metastores, OnMissing, Remote
from airflow_hive_federation.gateway.federation.owners import RemoteNames
from airflow_hive_federation.gateway.federation.target import Federation
from airflow_hive_federation.gateway.health import HealthSection
from airflow_hive_federation.gateway.methods import Access
from airflow_hive_federation.gateway.named_clusters import NamedClusters
from airflow_hive_federation.gateway.old_clients import Capability
from airflow_hive_federation.gateway.properties import (
    GrpcSection,
    grpc_section,
    read_properties,
    upstream_keyfile,
)
from airflow_hive_federation.gateway.rules import EVERYTHING, Exposure, Rule, Rules
from airflow_hive_federation.gateway.sections import read_section
from airflow_hive_federation.gateway.thrift_settings import ThriftSettings
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
from airflow_hive_federation.tunnel.tunnel import Tunnel

#: Turns the id of an Airflow connection, or comma-separated URIs, into settings of the metastore client.
Resolve = Callable[[str], MetastoreSettings]
_SECTIONS = (
    *("thrift", "grpc", "upstream", "federated", "federation"),
    *("rule", "expose", "aliases", "cluster", "metrics", "log", "properties", "health"),
)

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
    :param read_only_uris: URIs for calls that only read, except calls about transactions; they use the same
        transport and authentication as ``uris``.
    :param user: name of the gateway's own user at the metastore; by default, the operating system's user.
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
            connect_timeout_s=self.connect_timeout_s,
            max_answer_bytes=self.max_answer_bytes,
            dialer=self._tunnel(),
        )

    def metastore(self, name: str, resolve: Resolve) -> Metastore:
        """Return the target that sends calls to this metastore.

        :raises ConfigurationError: as :meth:`settings`.
        """
        settings = self.settings(resolve)
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
        hops = parse_route(self.ssh_route, self.ssh_private_keys)
        return Tunnel(TunnelSettings(hops=hops, known_hosts=self.ssh_known_hosts))


@dataclass(frozen=True, kw_only=True)
class FederatedSection(UpstreamSection):
    """A metastore beside the primary one (``[[federated]]``); it takes the keys of ``[upstream]``, too.

    :param name: name of the metastore in errors, logs and metrics.
    :param prefix: prefix that clients put before the names of its databases; the default is ``<name>_``
        without ``names`` and ``tables``, and else none.
    :param databases: patterns of its databases that clients see under the prefix.
    :param names: clients' names of its databases → its own names.
    :param tables: clients' names of single tables, ``database.table`` in a database of ``[upstream]`` → its
        own names.
    :param access: classes of methods that the gateway sends to it.
    :param timeout_s: seconds that the metastore has for a whole answer.
    """

    name: str
    prefix: str = ""
    databases: tuple[str, ...] = ("*",)
    names: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    access: tuple[Access, ...] = (Access.READ,)
    timeout_s: float = 30.0

    def remote(self, resolve: Resolve) -> Remote:
        """Return the metastore as a remote of the federation."""
        default = None if self.names or self.tables else f"{self.name}_".lower()
        return Remote(
            target=self.metastore(self.name, resolve),
            names=RemoteNames(
                databases=self.names, tables=self.tables, prefix=self.prefix or default, shown=self.databases
            ),
            timeout_s=self.timeout_s,
            writable=Access.WRITE in self.access,
        )


@dataclass(frozen=True, kw_only=True)
class FederationSection:
    """Settings that join several metastores into one (``[federation]``).

    :param transactions_of: name of the metastore whose transactions clients get; ``main`` is ``[upstream]``.
    :param on_missing: result of a list if a metastore does not deliver its part: ``fail``, or ``partial``,
        which logs and counts the gap.
    :param part_timeout_s: seconds that each other metastore has for its part of a list.
    :param follow_links: the gateway sends calls about a remote database or table that ``[upstream]`` records
        to the federated metastore that has one of the recorded URIs.
    """

    transactions_of: str = "main"
    on_missing: OnMissing = OnMissing.FAIL
    part_timeout_s: float = 5.0
    follow_links: bool = False


@dataclass(frozen=True, kw_only=True)
class ExposeSection:
    """Patterns of the databases and tables that clients can see at all (``[expose]``)."""

    databases: tuple[str, ...] = ("*",)
    tables: tuple[str, ...] = ("*",)


@dataclass(frozen=True, kw_only=True)
class ClusterSection:
    """The cluster whose engines this gateway serves, or those that its requests name (``[cluster]``).

    :param name: name of the cluster; without it, each request may name one.
    :param registry: path or URI of the JSON file with the registry of clusters.
    :param check_files: list the files of primaries and copies before clients see a copy.
    """

    registry: str
    name: str | None = None
    check_files: bool = True

    def view(self, target: Metastore | Federation) -> ClusterView | NamedClusters:
        """Return the cluster's view of a metastore, or the views of all clusters.

        :raises ClusterRegistryError: the file holds no registry.
        :raises UnknownClusterError: the registry has no cluster of this name.
        :raises StorageError: the file cannot be read.
        """
        registry = registry_of_file(self.registry)
        if self.name is None:
            return NamedClusters(target, registry, check_files=self.check_files)
        return ClusterView(target, registry, registry.cluster(self.name), self.check_files)


@dataclass(frozen=True, kw_only=True)
class MetricsSection:
    """The address that Prometheus scrapes (``[metrics]``); further worker processes take the next ports."""

    host: str = "127.0.0.1"
    port: int = 9090


@dataclass(frozen=True, kw_only=True)
class LogSection:
    """The file of the access log, one JSON object per line and call (``[log]``); ``-`` is standard error."""

    access: str | None = None


@dataclass(frozen=True, kw_only=True)
class GatewayConfig:
    """The gateway's whole configuration file.

    :param upstream: the metastore behind the gateway, called ``main``.
    :param federated: further metastores beside it.
    :param grpc: the gRPC front; ``None`` starts no gRPC front.
    :param file: the file, which errors name; ``None`` if the command line alone configures the gateway.
    """

    upstream: UpstreamSection
    federated: tuple[FederatedSection, ...] = ()
    federation: FederationSection = field(default_factory=FederationSection)
    thrift: ThriftSettings | None = field(default_factory=ThriftSettings)
    grpc: GrpcSection | None = None
    rules: tuple[Rule, ...] = (EVERYTHING,)
    expose: ExposeSection = field(default_factory=ExposeSection)
    aliases: Mapping[str, str] = field(default_factory=dict)
    cluster: ClusterSection | None = None
    metrics: MetricsSection | None = None
    log: LogSection = field(default_factory=LogSection)
    health: HealthSection = field(default_factory=HealthSection)
    file: Path | None = None

    def target(self, resolve: Resolve) -> Metastore | Federation | ClusterView | NamedClusters:
        """Make the target that sends calls to the metastores, without connecting to any of them yet.

        :raises ConfigurationError: the file's settings of a metastore are contradictory or unusable.
        :raises ClusterError: the registry has no such cluster.
        """
        with _naming(self.file):
            target = self._metastores(resolve)
            return target if self.cluster is None else self.cluster.view(target)

    def refuse_no_front(self) -> None:
        """Refuse a configuration that serves nothing.

        :raises ConfigurationError: neither front is configured.
        """
        if self.thrift is None and self.grpc is None:
            with _naming(self.file):
                raise ConfigurationError(
                    "The gateway would serve no front.",
                    remedy="Add [grpc] or --grpc-port, or remove thrift = false.",
                )

    def _metastores(self, resolve: Resolve) -> Metastore | Federation:
        primary = self.upstream.metastore("main", resolve)
        if not self.federated:
            self._refuse_federation_of_one()
            return primary
        metastores = Metastores(
            primary,
            {section.name: section.remote(resolve) for section in self.federated},
            transactions_of=self.federation.transactions_of,
            on_missing=self.federation.on_missing,
            part_timeout_s=self.federation.part_timeout_s,
            follow_links=self.federation.follow_links,
        )
        return Federation(metastores)

    def _refuse_federation_of_one(self) -> None:
        if self.federation != FederationSection():
            raise ConfigurationError(
                "[federation] joins several metastores, and the file has no [[federated]].",
                remedy="Add [[federated]], or leave [federation] out.",
            )

    def decisions(self) -> Rules:
        """Return the rules that decide on calls."""
        return Rules(self.rules, Exposure(self.expose.databases, self.expose.tables))


def read_config(path: Path) -> GatewayConfig:
    """Read the gateway's file.

    :raises ConfigurationError: the file cannot be read, or a key in it is unknown, missing or impossible.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"The gateway's file {path} cannot be read: {error}.", remedy="Give a TOML file."
        ) from error
    with _naming(path):
        return replace(config_of(values), file=path)


@contextmanager
def _naming(file: Path | None) -> Iterator[None]:
    """Put the name of the gateway's file before errors about its contents."""
    try:
        yield
    except (ConfigurationError, ClusterError) as error:
        if file is None:
            raise
        raise type(error)(f"{file}: {error.message}", remedy=error.remedy, **error.facts) from error


def config_of(values: Mapping[str, Any]) -> GatewayConfig:
    """Make the configuration from the values of a TOML file.

    :raises ConfigurationError: a key is unknown, missing or impossible.
    """
    unknown = sorted(set(values) - set(_SECTIONS))
    if unknown:
        raise ConfigurationError(
            f"The gateway's file has the section {unknown[0]!r}, which is not known.",
            remedy=f"Sections are {', '.join(_SECTIONS)}.",
        )
    thrift = values.get("thrift", {})
    rules = values.get("rule", [])
    if not isinstance(rules, list):
        raise ConfigurationError("[rule] is a section.", remedy="Write [[rule]]: there may be several.")
    properties = read_properties(values.get("properties", {}))
    return GatewayConfig(
        upstream=_upstream(values.get("upstream", {}), properties),
        federated=_federated(values.get("federated", [])),
        federation=read_section(FederationSection, "federation", values.get("federation", {})),
        thrift=None if thrift is False else read_section(ThriftSettings, "thrift", thrift),
        grpc=grpc_section(values.get("grpc"), properties),
        rules=tuple(read_section(Rule, "rule", rule) for rule in rules) or (EVERYTHING,),
        expose=read_section(ExposeSection, "expose", values.get("expose", {})),
        aliases=_aliases(values.get("aliases", {})),
        cluster=read_section(ClusterSection, "cluster", values["cluster"]) if "cluster" in values else None,
        metrics=read_section(MetricsSection, "metrics", values["metrics"]) if "metrics" in values else None,
        log=read_section(LogSection, "log", values.get("log", {})),
        health=read_section(HealthSection, "health", values.get("health", {})),
    )


def _upstream(values: object, properties: Mapping[str, str]) -> UpstreamSection:
    section = read_section(UpstreamSection, "upstream", values)
    if (keyfile := upstream_keyfile(properties)) is None:
        return section
    if section.service_account_keyfile not in {None, keyfile}:
        raise ConfigurationError(
            "[upstream] and [properties] name different key files of a service account.",
            remedy="Keep one of them.",
        )
    return replace(section, service_account_keyfile=keyfile)


def _federated(values: object) -> tuple[FederatedSection, ...]:
    if not isinstance(values, list):
        raise ConfigurationError(
            "[federated] is a section.", remedy="Write [[federated]]: there may be more."
        )
    sections = tuple(read_section(FederatedSection, "federated", section) for section in values)
    names = ["main", *(section.name for section in sections)]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"[[federated]] has a name twice: {', '.join(names)}.", remedy="Rename one.")
    return sections


def _aliases(values: object) -> dict[str, str]:
    if not isinstance(values, Mapping) or not all(isinstance(value, str) for value in values.values()):
        raise ConfigurationError("[aliases] is not a table of names.", remedy='Write alias = "database".')
    aliases = {str(alias).lower(): str(name).lower() for alias, name in values.items()}
    names = list(aliases.values())
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigurationError(
            f"[aliases] names the database {twice[0]} twice.", remedy="Give each database one alias."
        )
    return aliases


def _secret(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigurationError(
            f"The secret in {path} cannot be read: {error}.", remedy="Give a readable file."
        ) from error

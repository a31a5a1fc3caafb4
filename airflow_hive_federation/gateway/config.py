"""Reads the gateway's TOML file: its fronts, the metastores behind them, rules and names of databases."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
from airflow_hive_federation.gateway.properties import (
    GrpcSection,
    grpc_section,
    read_properties,
    upstream_keyfile,
)
from airflow_hive_federation.gateway.rules import EVERYTHING, Exposure, Rule, Rules
from airflow_hive_federation.gateway.sections import read_section
from airflow_hive_federation.gateway.thrift_settings import ThriftSettings
from airflow_hive_federation.gateway.upstream_section import Resolve, UpstreamSection
from airflow_hive_federation.runtime.unreadable_files import remedy_of_unreadable

_SECTIONS = (
    *("thrift", "grpc", "upstream", "federated", "federation"),
    *("rule", "expose", "aliases", "cluster", "metrics", "log", "properties", "health"),
)


@dataclass(frozen=True, kw_only=True)
class FederatedSection(UpstreamSection):
    """A metastore beside the primary one (``[[federated]]``); it takes the keys of ``[upstream]``, too.

    :param name: name of the metastore in errors, logs and metrics.
    :param prefix: prefix that clients put before the names of its databases; the default is ``<name>_``
        without ``names`` and ``tables``, and else none.
    :param databases: patterns of its databases that clients see under the prefix, and by links that the
        gateway follows; the default is all with a prefix, and else none.
    :param names: clients' names of its databases → its own names.
    :param tables: clients' names of single tables, ``database.table`` in a database of ``[upstream]`` → its
        own names.
    :param access: classes of methods that the gateway sends to it.
    :param timeout_s: seconds that the metastore has for a whole answer.
    """

    name: str
    prefix: str = ""
    databases: tuple[str, ...] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    access: tuple[Access, ...] = (Access.READ,)
    timeout_s: float = 30.0

    def remote(self, resolve: Resolve) -> Remote:
        """Return the metastore as a remote of the federation."""
        default = None if self.names or self.tables else f"{self.name}_".lower()
        prefix = self.prefix or default
        shown: tuple[str, ...] = () if prefix is None else ("*",)
        return Remote(
            target=self.metastore(self.name, resolve),
            names=RemoteNames(
                databases=self.names,
                tables=self.tables,
                prefix=prefix,
                shown=shown if self.databases is None else self.databases,
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
            f"The gateway's file {path} cannot be read: {error}.", remedy=remedy_of_unreadable(error)
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

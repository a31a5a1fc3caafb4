"""From VIA to a catalog: names, properties, and what is kept out of the metastore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from airflow_hive_federation.catalog.factories import (
    CONNECTION,
    HIDDEN,
    Factory,
    NoConnections,
    Opening,
    shown_properties,
)
from airflow_hive_federation.catalog.grpc import grpc_catalog_settings
from airflow_hive_federation.catalog.hive import HiveCatalog
from airflow_hive_federation.catalog.open import FACTORIES, Catalogs
from airflow_hive_federation.catalog.thrift import metastore_settings, tunnel_settings
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore import (
    KerberosSettings,
    MetastoreSettings,
    PlainSettings,
    TlsSettings,
)
from airflow_hive_federation.metastore.grpc_settings import GrpcSettings
from tests.support.memory_catalog import MemoryCatalog

URIS = {"hive.metastore.uris": "thrift://far:9083"}
ROUTE = {**URIS, "ssh.tunnel.route": "a@b -> c@d:2222"}


class Known:
    """Connections of a test."""

    def metastore(self, connection_id: str) -> MetastoreSettings:
        return MetastoreSettings(uris=(f"thrift://{connection_id}:9083",), user="conn")

    def passphrase(self, connection_id: str) -> str:
        return f"phrase of {connection_id}"

    def session(self, connection_id: str) -> Mapping[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("via", "name"),
    [
        (None, "thrift"),
        ("Thrift", "thrift"),
        ("org.apache.hadoop.hive.metastore.ThriftHiveMetastoreClientFactory", "thrift"),
        ("org.apache.hadoop.hive.metastore.SSHThriftHiveMetastoreClientFactory", "ssh"),
        ("ssh", "ssh"),
    ],
)
def test_factories_by_short_name_and_class(via: str | None, name: str) -> None:
    assert Catalogs().factory(via).name == name


@pytest.mark.parametrize(
    ("via", "nearest"), [("thrifft", "thrift"), ("x.SSHThriftHiveMetastoreClient", "SSHThrift")]
)
def test_an_unknown_factory_gets_a_suggestion(via: str, nearest: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Did you mean '{nearest}"):
        Catalogs().factory(via)


def opening(**properties: str) -> Opening:
    return Opening(remote="db.t", properties=properties)


def test_a_gateway() -> None:
    for name in ("metastore.uris", "hive.metastore.uris"):
        made = grpc_catalog_settings(opening(**{name: "grpc://a:1, grpc://b:2"}))
        assert made.uris == ("grpc://a:1", "grpc://b:2")
    plain = {"metastore.uris": "grpc://a", "metastore.grpc.plaintext": "true", "metastore.grpc.cluster": "C2"}
    assert grpc_catalog_settings(opening(**plain)).grpc == GrpcSettings(plaintext=True, cluster="C2")
    with pytest.raises(ConfigurationError, match=r"Remote db\.t is VIA 'grpc', and thrift://h:9083"):
        grpc_catalog_settings(opening(**{"metastore.uris": "thrift://h"}))
    with pytest.raises(ConfigurationError, match="differ"):
        grpc_catalog_settings(opening(**{"metastore.uris": "grpc://a", "hive.metastore.uris": "grpc://b"}))


@pytest.mark.parametrize(
    "name",
    [
        "metastore.grpc.service.account.keyfile",
        "metastore.grpc.token.file",
        "metastore.custom.client.class",
        "metastore.client.impl",
    ],
)
def test_a_remote_names_no_credentials_and_no_class(name: str) -> None:
    factory = Catalogs().factory("grpc")
    with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")):
        factory.check({"metastore.uris": "grpc://a", name: "x"})


def test_properties_are_checked() -> None:
    thrift = Catalogs().factory(None)
    thrift.check(URIS)
    with pytest.raises(ConfigurationError, match=r"Did you mean 'hive\.metastore\.uris'"):
        thrift.check({"hive.metastore.uri": "thrift://far:9083"})
    with pytest.raises(ConfigurationError, match=r"needs the property 'hive\.metastore\.uris' or"):
        thrift.check({})
    with pytest.raises(ConfigurationError, match=r"needs the property 'ssh\.tunnel\.route'"):
        Catalogs().factory("ssh").check(URIS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hive.metastore.uris", "thrift://user:pass@far:9083"),
        ("ssh.tunnel.private.keys", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc"),
    ],
)
def test_secrets_are_refused_and_hidden(name: str, value: str) -> None:
    ssh = Catalogs().factory("ssh")
    with pytest.raises(ConfigurationError, match="secret") as caught:
        ssh.check({**ROUTE, name: value})
    assert "abc" not in str(caught.value)
    assert "pass@" not in str(caught.value)
    assert HIDDEN in shown_properties({name: value})[name]
    assert "pass" not in shown_properties({name: value})[name]


def test_what_is_shown() -> None:
    shown = shown_properties({**ROUTE, "aws.secret.key": "x", "my.token": "y"})
    assert shown == {**ROUTE, "aws.secret.key": HIDDEN, "my.token": HIDDEN}


def test_settings_of_a_remote() -> None:
    opening = Opening(
        remote="r",
        properties={
            "hive.metastore.uris": "thrift://a:1, thrift://b:2",
            "hive.metastore.client.socket.timeout": "5m",
            "metastore.catalog.default": "other",
        },
        user="ada",
    )
    settings = metastore_settings(opening)
    assert settings.uris == ("thrift://a:1", "thrift://b:2")
    assert (settings.user, settings.catalog, settings.call_timeout_s) == ("ada", "other", 300)
    assert settings.connect_timeout_s == 10
    short = {**URIS, "hive.metastore.client.socket.timeout": "100ms"}
    assert metastore_settings(Opening(remote="r", properties=short)).connect_timeout_s == 0.1
    by_connection = Opening(
        remote="r", properties={"hive.federation.connection": "far"}, connections=Known(), user="ada"
    )
    assert metastore_settings(by_connection).uris == ("thrift://far:9083",)
    assert metastore_settings(by_connection).user == "conn"
    with pytest.raises(ConfigurationError, match="cannot be looked up here"):
        metastore_settings(Opening(remote="r", properties={"hive.federation.connection": "far"}))
    with pytest.raises(ConfigurationError, match="not a duration"):
        metastore_settings(
            Opening(remote="r", properties={**URIS, "hive.metastore.client.socket.timeout": "soon"})
        )


def test_the_route_of_a_remote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVE_FEDERATION_REMOTE_SSH_FILES", "/k")
    properties = {
        **ROUTE,
        "ssh.tunnel.private.keys": "/k/1, /k/2",
        "ssh.tunnel.known.hosts": "/k/known",
        "ssh.tunnel.timeout": "5s",
        "ssh.tunnel.connection": "keys",
    }
    settings = tunnel_settings(Opening(remote="r", properties=properties, connections=Known()))
    assert str(settings) == "a@b -> c@d:2222"
    assert [hop.keys for hop in settings.hops] == [("/k/1",), ("/k/2",)]
    assert (settings.known_hosts, settings.timeout_s) == (("/k/known",), 5)
    assert settings.passphrase == "phrase of keys"


@pytest.mark.parametrize("name", ["ssh.tunnel.private.keys", "ssh.tunnel.known.hosts", "ssh.tunnel.config"])
@pytest.mark.parametrize("path", ["/etc/passwd", "~/.ssh/../id", "/k/../etc/key", "/kk/known"])
def test_ssh_files_lie_where_they_may(name: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for allowed in (None, "/k:/l"):
        if allowed:
            monkeypatch.setenv("HIVE_FEDERATION_REMOTE_SSH_FILES", allowed)
        opening = Opening(remote="r", properties={**ROUTE, name: path})
        with pytest.raises(ConfigurationError, match=r"HIVE_FEDERATION_REMOTE_SSH_FILES") as caught:
            tunnel_settings(opening)
        assert name in str(caught.value)


def test_tls_goes_through_a_tunnel() -> None:
    with Catalogs() as catalogs:
        properties = {**ROUTE, "hive.metastore.uris": "thrift+tls://far:9083"}
        catalog, _ = catalogs.open("ssh", properties, remote="r")
        assert isinstance(catalog, HiveCatalog)


def test_each_configuration_has_its_own_connections() -> None:
    with Catalogs() as catalogs:
        first, its_breaker = catalogs.open(None, URIS, remote="one")
        assert catalogs.open("thrift", URIS, remote="two") == (first, its_breaker)
        other, other_breaker = catalogs.open(None, {"hive.metastore.uris": "thrift://x:1"}, remote="three")
        assert isinstance(other, HiveCatalog)
        assert other is not first
        assert other_breaker is not its_breaker


def test_others_add_factories() -> None:
    mine = MemoryCatalog()
    factory = Factory(
        name="mine", class_names=(), properties={"a": ""}, open=lambda _: mine, prefixes=("b.",)
    )
    catalogs = Catalogs(factories=(*FACTORIES, factory))
    assert catalogs.open("mine", {"b.c": "1"}, remote="r")[0] is mine


class _Connection(NoConnections):
    def __init__(self, **settings: Any) -> None:
        self.settings = MetastoreSettings(**{"uris": ("thrift://metastore.corp:9083",), **settings})

    def metastore(self, connection_id: str) -> MetastoreSettings:
        assert connection_id == "far"
        return self.settings


class _OwnRoute:
    def dial(self, host: str, port: int, timeout_s: float) -> Any:
        raise AssertionError

    def close(self) -> None:
        pass


BESIDE = {CONNECTION: "far", "ssh.tunnel.route": "me@elsewhere"}
PASSWORD = PlainSettings(user="svc", password="sesame-7261")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"dialer": _OwnRoute()}, "a route of its own"),
        ({"dialer": _OwnRoute(), "authentication": PASSWORD}, "a route of its own"),
        ({"uris": ("thrift://127.0.0.1",), "authentication": PASSWORD}, "has credentials"),
        (
            {"authentication": KerberosSettings(server_principal="hive/_HOST@EXAMPLE.COM")},
            "has credentials",
        ),
        ({"uris": ("http://127.0.0.1/m",), "http_headers": {"Authorization": "x"}}, "has credentials"),
        ({"tls": TlsSettings(verify=False), "authentication": PASSWORD}, "has credentials"),
        (
            {"uris": ("thrift+tls://a", "thrift://127.0.0.1"), "authentication": PASSWORD},
            "has credentials",
        ),
        ({"uris": ("grpc://localhost",), "grpc": GrpcSettings(token="sesame-7261")}, "has credentials"),
    ],
)
def test_a_route_beside_a_connection_gets_none_of_its_credentials(settings: dict[str, Any], why: str) -> None:
    with Catalogs(_Connection(**settings)) as catalogs:
        with pytest.raises(
            ConfigurationError, match=f"Remote r has .*'ssh.tunnel.route' beside connection 'far', .*{why}"
        ) as caught:
            catalogs.open("ssh", BESIDE, remote="r")
        assert "'ssh_route'" in caught.value.remedy
        assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"user": "ada"},
        {"uris": ("thrift+tls://metastore.corp",), "authentication": PASSWORD},
        {"tls": TlsSettings(), "authentication": PASSWORD},
        {"uris": ("grpc://metastore.corp",), "grpc": GrpcSettings(token="x")},
        {"uris": ("https://metastore.corp",), "http_headers": {"Authorization": "x"}},
    ],
)
def test_other_routes_beside_a_connection(settings: dict[str, Any]) -> None:
    with Catalogs(_Connection(**settings)) as catalogs:
        catalogs.open("ssh", BESIDE, remote="r")

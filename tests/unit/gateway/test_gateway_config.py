"""The gateway's file: every key is checked, and what it means is what the parts get."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.config import (
    FederatedSection,
    FederationSection,
    UpstreamSection,
    config_of,
    read_config,
)
from airflow_hive_federation.gateway.handler import Caller
from airflow_hive_federation.gateway.rules import Rule
from airflow_hive_federation.gateway.thrift_front import ThriftSettings
from airflow_hive_federation.metastore import KerberosSettings, MetastoreSettings, PlainSettings

UPSTREAM = {"upstream": {"uris": ["thrift://far:9083"]}}


def nobody(connection: str) -> MetastoreSettings:
    raise AssertionError(connection)


def test_a_whole_file(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    file = tmp_path / "gateway.toml"
    file.write_text(
        f"""
        [thrift]
        port = 9084
        idle_timeout_s = 60
        cert_file = "cert.pem"
        client_ca_file = "ca.pem"
        [upstream]
        uris = ["https://far:9001/metastore"]
        read_only_uris = ["https://near:9001/metastore"]
        bearer_token_file = "{token}"
        impersonate = true
        [[rule]]
        users = ["etl*"]
        access = ["read", "write"]
        databases = ["*", "!secret"]
        [expose]
        databases = "sales*"
        [aliases]
        Sales_Far = "sales"
        [metrics]
        port = 9100
        [log]
        access = "-"
        """
    )
    config = read_config(file)
    assert config.thrift is not None
    assert config.thrift.tls is not None
    assert (config.thrift.port, config.thrift.idle_timeout_s) == (9084, 60.0)
    assert config.thrift.tls.files == ("cert.pem", "ca.pem")
    assert config.aliases == {"sales_far": "sales"}
    assert config.rules[0].concerns(Caller(user="etl7"))
    assert not config.rules[0].concerns(Caller(user="bob"))
    target = config.target(nobody)
    assert target.reading is not None
    assert target.reading.settings.uris == ("https://near:9001/metastore",)
    assert target.upstream.settings.http_headers["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in repr(config) + repr(target.upstream.settings)
    target.close()


def test_ways_to_prove_who_asks(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("pw")
    plain = config_of(
        {"upstream": {"uris": ["thrift+tls://far:9083"], "user": "u", "password_file": str(secret)}}
    ).upstream.settings(nobody)
    assert plain.authentication == PlainSettings(user="u", password="pw")
    kerberos = config_of(
        {"upstream": {"uris": ["thrift://far:9083"], "kerberos_principal": "hive/_HOST@X", "keytab": "/k"}}
    ).upstream.settings(nobody)
    assert kerberos.authentication == KerberosSettings(server_principal="hive/_HOST@X", keytab="/k")
    tunnel = config_of(
        {"upstream": {"uris": ["thrift://far:9083"], "ssh_route": "me@bastion -> me@inside"}}
    ).upstream.settings(nobody)
    assert tunnel.dialer is not None
    asked: list[str] = []

    def resolve(connection: str) -> MetastoreSettings:
        asked.append(connection)
        return MetastoreSettings(uris=("thrift://x:1",))

    config_of({"upstream": {"connection": "far"}}).upstream.settings(resolve)
    assert asked == ["far"]


WRONG = {
    "unknown section": ("upstreams = 1", "section 'upstreams'"),
    "unknown key": ('[upstream]\nuri = ["thrift://a:1"]', "'uri', which is not known.*mean uris"),
    "no upstream": ("", "needs URIs or a connection"),
    "both": ('[upstream]\nuris = ["thrift://a:1"]\nconnection = "x"', "needs URIs or a connection"),
    "type": ('[upstream]\nuris = ["thrift://a:1"]\n[thrift]\nport = "9083"', r"\[thrift\] port is '9083'"),
    "truth": ('[upstream]\nuris = ["thrift://a:1"]\n[thrift]\nport = true', r"\[thrift\] port is True"),
    "access": ('[upstream]\nuris = ["thrift://a:1"]\n[[rule]]\naccess = ["own"]', "read, write, admin"),
    "one rule": ('[upstream]\nuris = ["thrift://a:1"]\n[rule]\nusers = ["a"]', r"Write \[\[rule\]\]"),
    "twice": ('[upstream]\nuris = ["thrift://a:1"]\n[aliases]\na = "x"\nb = "X"', "twice"),
    "secret": (
        '[upstream]\nuris = ["http://127.0.0.1:1"]\nbearer_token_file = "/none"',
        "/none cannot be read",
    ),
    "tls without cert": ('[upstream]\nuris = ["thrift://a:1"]\n[thrift]\nkey_file = "k"', "lacks cert_file"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named(case: str) -> None:
    text, message = WRONG[case]
    with pytest.raises(ConfigurationError) as caught:
        config_of(tomllib.loads(text)).target(nobody)
    assert re.search(message, str(caught.value), re.DOTALL)


DOCUMENT = (Path(__file__).parents[3] / "docs" / "gateway.md").read_text(encoding="utf-8")


def test_the_documented_file_is_one() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCUMENT, re.DOTALL)
    config = config_of(tomllib.loads(example))
    assert config.federated[0].remote(nobody).names.prefix == "far_"
    assert len(config.rules) == 2


@pytest.mark.parametrize(
    "section", [ThriftSettings, UpstreamSection, FederatedSection, FederationSection, Rule]
)
def test_every_key_is_documented(section: type) -> None:
    # Those that only workers set, or that have no use in a file.
    unsaid = {"tls", "reuse_port", "idle_s", "connect_timeout_s", "max_answer_bytes"}
    for field in fields(section):
        assert f"`{field.name}`" in DOCUMENT or field.name in unsaid, field.name

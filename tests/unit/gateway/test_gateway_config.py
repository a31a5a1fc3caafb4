"""The gateway's file: every key is checked, and what it means is what the parts get."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.config import (
    FederatedSection,
    FederationSection,
    config_of,
    read_config,
)
from airflow_hive_federation.gateway.federation.target import Federation
from airflow_hive_federation.gateway.handler import Caller
from airflow_hive_federation.gateway.messages import HIVES_REQUEST_BYTES
from airflow_hive_federation.gateway.rules import Rule
from airflow_hive_federation.gateway.thrift_settings import ThriftSettings
from airflow_hive_federation.gateway.upstream_section import UpstreamSection
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
    assert config.metrics is not None
    assert config.metrics.port == 9100
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
    named = config_of({"upstream": {"connection": "far", "user": "me"}}).upstream.settings(resolve)
    assert (named.uris, named.user) == (("thrift://x:1",), "me")


#: Sections with credentials by which a metastore knows the gateway's own user only.
OWN_IDENTITIES: dict[str, dict[str, Any]] = {
    "SASL": {"uris": ["thrift+tls://far:9083"], "user": "gate", "password_file": "SECRET"},
    "SASL ": {"uris": ["thrift://far:9083"], "kerberos_principal": "hive/_HOST@X"},
    "bearer token": {"uris": ["https://far:9001/metastore"], "bearer_token_file": "SECRET"},
    "bearer token ": {
        "uris": ["thrift://far:9083"],
        "read_only_uris": ["https://near:9001/metastore"],
        "bearer_token_file": "SECRET",
    },
    "a token or": {"uris": ["grpc://far:9084"], "bearer_token_file": "SECRET"},
    "service account": {"uris": ["grpc://far:9084"], "service_account_keyfile": "SECRET"},
    "gateway's certificate": {"uris": ["grpc://far:9084"], "cert_file": "SECRET"},
}


@pytest.mark.parametrize("credential", OWN_IDENTITIES)
def test_nobody_is_impersonated_by_the_gateways_own_credentials(tmp_path: Path, credential: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("pw")
    values = {
        key: str(secret) if value == "SECRET" else value for key, value in OWN_IDENTITIES[credential].items()
    }
    config_of({"upstream": values}).target(nobody).close()
    with pytest.raises(ConfigurationError, match=f"impersonate = true.*{credential.strip()}"):
        config_of({"upstream": {**values, "impersonate": True}}).target(nobody)
    federated = [{"name": "far", "impersonate": True, **values}]
    with pytest.raises(ConfigurationError, match="The metastore far has impersonate = true"):
        config_of({**UPSTREAM, "federated": federated}).target(nobody)


def test_a_connections_credentials_impersonate_nobody() -> None:
    values = {"upstream": {"connection": "far", "impersonate": True}}
    settings = MetastoreSettings(
        uris=("thrift+tls://far:9083",), authentication=PlainSettings(user="u", password="pw")
    )
    with pytest.raises(ConfigurationError, match="it knows its clients by SASL"):
        config_of(values).target(lambda _name: settings)


@pytest.mark.parametrize(
    "values",
    [
        {"uris": ["thrift+tls://far:9083"], "cert_file": "cert.pem"},
        {"uris": ["http://far:9001/metastore"]},
        {"uris": ["grpc://far:9084"]},
    ],
)
def test_names_are_sent_where_nothing_else_is(values: dict[str, Any]) -> None:
    target = config_of({"upstream": {**values, "impersonate": True}}).target(nobody)
    assert target.upstreams[0].impersonate
    target.close()


def test_the_metastores_own_catalog() -> None:
    target = config_of({"upstream": {"uris": ["thrift://far:9083"], "catalog": "Spark"}}).target(nobody)
    assert [target.serves_catalog(name) for name in ("", "spark ", "hive")] == [True, True, False]
    target.close()


@pytest.mark.parametrize("key", ["ca_file", "cert_file"])
def test_a_file_of_tls_turns_tls_on(key: str) -> None:
    section = {"uris": ["thrift://far:9083"], key: "/file"}
    tls = config_of({"upstream": section}).upstream.settings(nobody).tls
    assert getattr(tls, key) == "/file"


def test_an_upstream_without_files_of_tls_is_in_plain_text() -> None:
    assert config_of(UPSTREAM).upstream.settings(nobody).tls is None


def test_a_capability_that_hive_does_not_know_is_refused_with_the_known_ones() -> None:
    known = ["HIVEFULLACIDWRITE", "MANAGE_RAW_METADATA"]
    config = config_of({"upstream": {"uris": ["thrift://far:9083"], "old_client_capabilities": known}})
    assert config.upstream.old_client_capabilities == tuple(known)
    for unknown in ("HIVEFULLACIDWRITES", "hivefullacidwrite"):
        section = {"name": "far", "uris": ["thrift://far:9083"], "old_client_capabilities": [*known, unknown]}
        with pytest.raises(ConfigurationError, match=f"old_client_capabilities is '{unknown}'") as caught:
            config_of({**UPSTREAM, "federated": [section]})
        assert all(name in caught.value.remedy for name in known)


def test_numbers_are_of_the_type_of_their_key() -> None:
    thrift = config_of({**UPSTREAM, "thrift": {"port": 9084, "idle_timeout_s": 60}}).thrift
    assert thrift is not None
    assert (type(thrift.port), type(thrift.idle_timeout_s)) == (int, float)


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        ({}, "far_"),
        ({"prefix": "there_"}, "there_"),
        ({"names": {"sales_far": "sales"}}, None),
        ({"tables": {"ours.rates": "finance.rates"}}, None),
        ({"names": {"sales_far": "sales"}, "prefix": "there_"}, "there_"),
    ],
)
def test_a_federated_metastore_has_a_prefix_unless_it_has_names(
    names: dict[str, Any], prefix: str | None
) -> None:
    section = {"name": "Far", "uris": ["thrift://far:9083"], **names}
    config = config_of({**UPSTREAM, "federated": [section]})
    names = config.federated[0].remote(nobody).names
    assert (names.prefix, names.shown) == (prefix, () if prefix is None else ("*",))
    chosen = {**UPSTREAM, "federated": [{**section, "databases": ["a*"]}]}
    assert config_of(chosen).federated[0].remote(nobody).names.shown == ("a*",)
    target = config.target(nobody)
    assert isinstance(target, Federation)
    target.close()


@pytest.mark.parametrize("text", [None, "port = "])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "gateway.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigurationError, match=r"gateway.toml cannot be read"):
        read_config(file)


WRONG = {
    "unknown section": ("upstreams = 1", "section 'upstreams'"),
    "unknown key": ('[upstream]\nuri = ["thrift://a:1"]', "'uri', which is not known.*mean uris"),
    "no upstream": ("", "needs URIs or a connection"),
    "both": ('[upstream]\nuris = ["thrift://a:1"]\nconnection = "x"', "needs URIs or a connection"),
    "type": ('[upstream]\nuris = ["thrift://a:1"]\n[thrift]\nport = "9083"', r"\[thrift\] port is '9083'"),
    "truth": ('[upstream]\nuris = ["thrift://a:1"]\n[thrift]\nport = true', r"\[thrift\] port is True"),
    "access": ('[upstream]\nuris = ["thrift://a:1"]\n[[rule]]\naccess = ["own"]', "read, write, admin"),
    "one rule": ('[upstream]\nuris = ["thrift://a:1"]\n[rule]\nusers = ["a"]', r"Write \[\[rule\]\]"),
    "twice": (
        '[upstream]\nuris = ["thrift://a:1"]\n[aliases]\na = "x"\nb = "X"',
        "names the database x twice",
    ),
    "secret": (
        '[upstream]\nuris = ["http://127.0.0.1:1"]\nbearer_token_file = "/none"',
        "/none cannot be read",
    ),
    "federated section": (
        '[upstream]\nuris = ["thrift://a:1"]\n[federated]\nname = "far"',
        r"Write \[\[federated\]\]",
    ),
    "federated twice": (
        '[upstream]\nuris = ["thrift://a:1"]\n'
        + '[[federated]]\nname = "far"\nuris = ["thrift://b:1"]\n' * 2,
        "a name twice: main, far, far",
    ),
    "federated main": (
        '[upstream]\nuris = ["thrift://a:1"]\n[[federated]]\nname = "main"\nuris = ["thrift://b:1"]',
        "a name twice: main, main",
    ),
    "no aliases": ('aliases = "a"\n[upstream]\nuris = ["thrift://a:1"]', "is not a table of names"),
    "alias of a number": ('[upstream]\nuris = ["thrift://a:1"]\n[aliases]\na = 1', "is not a table of names"),
    "password without user": (
        '[upstream]\nuris = ["thrift://a:1"]\npassword_file = "/none"',
        "password_file and no user",
    ),
    "no front": ('grpc = "no"', r"\[grpc\] is no section"),
    "no section": ('expose = 1\n[upstream]\nuris = ["thrift://a:1"]', r"\[expose\] is no section"),
    "no near key": ("[upstream]\nzzz = 1", "'zzz', which is not known.*Keys are audience, bearer_token_file"),
    "key of tls": ('[thrift]\ncert_fil = "x"', "mean cert_file"),
    "no key of tls": ('[expose]\ncert_fil = "x"', "Keys are databases, tables"),
    "tls": ("[thrift]\ntls = 1", r"the key 'tls', which is not known.*Keys are allow_plain"),
    "negative port": ("[thrift]\nport = -1", r"\[thrift\] port is -1.*a port from 0 to 65535"),
    "large port": ("[metrics]\nport = 65536", r"\[metrics\] port is 65536.*a port from 0 to 65535"),
    "no connections": ("[upstream]\nmax_connections = 0", r"max_connections is 0.*a number above 0"),
    "no time": ("[thrift]\ncall_timeout_s = 0", r"call_timeout_s is 0.0.*a number of seconds above 0"),
    "negative drain": ("[grpc]\ndrain_timeout_s = -1", r"drain_timeout_s is -1.0.*0 or more"),
    "federation of one": (
        '[upstream]\nuris = ["thrift://a:1"]\n[federation]\nfollow_links = true',
        r"the file has no \[\[federated\]\]",
    ),
    "list": ("[upstream]\nuris = 5", r"\[upstream\] uris is 5.*Give a list"),
    "item": ("[upstream]\nuris = [5]", r"\[upstream\] uris is 5.*Give a text"),
    "table": (
        '[upstream]\nuris = ["thrift://a:1"]\n[[federated]]\nname = "far"\nnames = "sales"',
        "names is 'sales'.*a table of texts",
    ),
    "table of numbers": (
        '[upstream]\nuris = ["thrift://a:1"]\n[[federated]]\nname = "far"\nnames = { a = 1 }',
        "a table of texts",
    ),
    "text": ("[thrift]\nhost = 5", "Give a text"),
    "optional text": ("[log]\naccess = 5", "Give a text"),
    "text for a number": ('[thrift]\nidle_timeout_s = "60"', "idle_timeout_s is '60'.*Give a number"),
    "truth for a number": ("[thrift]\nidle_timeout_s = true", "idle_timeout_s is True.*Give a number"),
    "number for a truth": ("[thrift]\nallow_plain = 1", "Give true or false"),
    "tls beside a connection": (
        '[upstream]\nconnection = "far"\nca_file = "/ca"\nconnect_timeout_s = 5',
        "connection far, and connect_timeout_s, ca_file.*tls_ca_file",
    ),
    "tls without cert": ('[upstream]\nuris = ["thrift://a:1"]\n[thrift]\nkey_file = "k"', "lacks cert_file"),
}


def test_a_front_that_is_false_is_none() -> None:
    config = config_of({**UPSTREAM, "thrift": False, "grpc": False})
    assert (config.thrift, config.grpc) == (None, None)


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named(case: str) -> None:
    text, message = WRONG[case]
    with pytest.raises(ConfigurationError) as caught:
        config_of(tomllib.loads(text)).target(nobody)
    assert re.search(message, str(caught.value), re.DOTALL)


DOCUMENT = (Path(__file__).parents[3] / "docs" / "gateway.md").read_text(encoding="utf-8")


def test_the_documented_file_is_one() -> None:
    example, *_ = re.findall(r"```toml\n(.*?)```", DOCUMENT, re.DOTALL)
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


@pytest.mark.parametrize("front", ["thrift", "grpc"])
@pytest.mark.parametrize("size", [0, HIVES_REQUEST_BYTES + 1])
def test_calls_longer_than_hives_own_limit_are_not_accepted(front: str, size: int) -> None:
    values = {"upstream": {"uris": ["thrift://x:1"]}}
    assert config_of({**values, front: {"max_request_bytes": HIVES_REQUEST_BYTES}})
    with pytest.raises(ConfigurationError, match=f"max_request_bytes.* is {size}"):
        config_of({**values, front: {"max_request_bytes": size}})

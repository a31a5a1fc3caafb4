"""Settings by the design's names: what they become, and what is refused."""

from __future__ import annotations

import re
import tomllib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.config import GatewayConfig, config_of
from airflow_hive_federation.gateway.grpc.server import GrpcFront
from airflow_hive_federation.gateway.serving import start
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from tests.support.gateways import Clients, Peers
from tests.support.metastore_peers import Thrift

OURS = "airflow_hive_federation.gateway.grpc.server.GrpcFront"
TOKENS = "airflow_hive_federation.gateway.grpc.tokens.BearerTokens"
SERVER_CLASS = "metastore.custom.server.class"
DOCUMENT = (Path(__file__).parents[3] / "docs" / "gateway.md").read_text(encoding="utf-8")


class Counted(GrpcFront):
    """A server class of a user."""

    made = 0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        type(self).made += 1


class Lame:
    """No server: it cannot be stopped."""

    def start(self) -> None: ...


def config(properties: dict[str, Any], **sections: Any) -> GatewayConfig:
    return config_of({"upstream": {"uris": ["thrift://x:1"]}, "properties": properties, **sections})


def nobody(connection: str) -> MetastoreSettings:
    raise AssertionError(connection)


def test_every_setting_of_the_design_is_taken() -> None:
    made = config(
        {
            SERVER_CLASS: OURS,
            "metastore.uris": "grpc://a:1234, grpc://b:1234",
            "metastore.grpc.max.request.size": 5,
            "metastore.grpc.max.connections": "6",
            "metastore.grpc.authentication.class": TOKENS,
            "metastore.grpc.authentication.strip.domain": True,
            "metastore.custom.client.class": "a.B",
            "metastore.client.impl": "a.B",
        }
    )
    assert made.grpc is not None
    front = made.grpc.settings
    assert (made.grpc.server_class, front.host, front.port) == (OURS, "127.0.0.1", 1234)
    assert (front.max_request_bytes, front.max_connections) == (5, 6)
    assert (front.authentication_class, dict(front.authentication)) == (TOKENS, {"strip.domain": "true"})


def test_a_port_of_its_own_comes_before_that_of_the_uris() -> None:
    uris = {"metastore.uris": "grpc://balancer:443"}
    given = config({SERVER_CLASS: OURS, "metastore.grpc.port": 5, **uris}).grpc
    assert given is not None
    assert given.settings.port == 5
    section = config(uris, grpc={"port": 6}).grpc
    assert section is not None
    assert section.settings.port == 6


@pytest.mark.parametrize(
    "properties", [{"metastore.grpc.max.connections": 5}, {"metastore.grpc.authentication.class": TOKENS}]
)
def test_the_two_places_of_settings_add_up(properties: dict[str, Any]) -> None:
    section: dict[str, Any] = {"authentication": {"issuer": "a"}}
    if "metastore.grpc.max.connections" in properties:
        section["authentication_class"] = TOKENS
    front = config(properties, grpc=section).grpc
    assert front is not None
    assert front.settings.authentication_class == TOKENS
    assert dict(front.settings.authentication) == {"issuer": "a"}


def test_there_is_no_grpc_front_unless_one_is_asked_for() -> None:
    assert config({"metastore.uris": "grpc://a:1", "metastore.client.impl": "a.B"}).grpc is None


def test_the_gateway_is_a_service_account_to_a_metastore_over_grpc() -> None:
    named = {"metastore.grpc.service.account.keyfile": "/key.json"}
    over_grpc = {"uris": ["grpc://x:1"], "audience": "far"}
    made = config(named, upstream=over_grpc).upstream.settings(nobody).grpc
    assert (made.service_account_keyfile, made.audience) == ("/key.json", "far")
    token = config({}, upstream={"uris": ["grpc://x:1"], "bearer_token_file": "/token"}).upstream
    assert token.settings(nobody).grpc.token_file == "/token"
    alone = config({}, upstream={**over_grpc, "service_account_keyfile": "/key.json"}).upstream
    assert alone.service_account_keyfile == "/key.json"
    same = config(named, upstream={**over_grpc, "service_account_keyfile": "/key.json"}).upstream
    assert same.service_account_keyfile == "/key.json"
    with pytest.raises(ConfigurationError, match=r"has the key file .*no URI is grpc://"):
        config(named).target(nobody)
    with pytest.raises(ConfigurationError, match="connection far, and service_account_keyfile"):
        config(named, upstream={"connection": "far"}).target(nobody)
    with pytest.raises(ConfigurationError, match="different key files"):
        config(named, upstream={**over_grpc, "service_account_keyfile": "/other.json"})


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "typo": ({"metastore.grpc.max.conections": 1}, {}, "Did you mean metastore.grpc.max.connections"),
    "unknown": ({"zzz": 1}, {}, "'zzz', which is not known"),
    "not_quoted": ({"metastore": {"uris": "grpc://a"}}, {}, "names in quotes"),
    "no_section": (None, {}, r"\[properties\] is no section"),  # type: ignore[dict-item]
    "no_number": ({SERVER_CLASS: OURS, "metastore.grpc.port": "x"}, {}, "is 'x', which is no number"),
    "zero": ({SERVER_CLASS: OURS, "metastore.grpc.max.connections": 0}, {}, "max_connections"),
    "no_front": (
        {"metastore.grpc.authentication.class": TOKENS},
        {},
        "metastore.grpc.authentication.class, and there is no gRPC front",
    ),
    "twice": ({"metastore.grpc.port": 1}, {"grpc": {"port": 1}}, r"\[grpc\] has port, and \[properties\]"),
    "class_twice": (
        {"metastore.grpc.authentication.class": TOKENS},
        {"grpc": {"authentication_class": TOKENS}},
        "has authentication_class, and",
    ),
    "settings_twice": (
        {"metastore.grpc.authentication.issuer": "a"},
        {"grpc": {"authentication": {"issuer": "b"}}},
        "has authentication, and",
    ),
    "ports": ({SERVER_CLASS: OURS, "metastore.uris": "grpc://a:1,grpc://a:2"}, {}, "several ports: 1, 2"),
    "thrift": ({SERVER_CLASS: OURS, "metastore.uris": "thrift://a:1"}, {}, "no socket of the gRPC front"),
    "no_uri": ({SERVER_CLASS: OURS, "metastore.uris": "a:1"}, {}, "no metastore URI"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str) -> None:
    properties, sections, message = WRONG[name]
    with pytest.raises(ConfigurationError) as caught:
        config(properties, **sections)
    assert re.search(message, str(caught.value), re.DOTALL)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("com.example.HiveMetaStoreGrpcServer", "cannot be imported"),
        (f"{__name__}.OURS", "is no class"),
        (f"{__name__}.Lame", "has no stop"),
    ],
    ids=["java", "no_class", "no_server"],
)
def test_a_class_that_cannot_serve_is_refused(path: str, message: str) -> None:
    made = config({SERVER_CLASS: path, "metastore.grpc.port": 0}, thrift=False)
    with pytest.raises(ConfigurationError, match=message):
        start(made, nobody)


def test_the_named_class_serves(peer: Peers, stack: ExitStack, client: Clients) -> None:
    # Its health is checked (getStatus), too.
    upstream = peer(Thrift(lambda method, _args: ["a"] if method == "get_all_databases" else 2)).uri
    properties = {SERVER_CLASS: f"{__name__}.Counted", "metastore.grpc.port": 0}
    serving = start(config(properties, upstream={"uris": [upstream]}, thrift=False), nobody)
    stack.callback(serving.stop)
    (front,) = serving.fronts
    assert client(front.uri).call("get_all_databases") == ["a"]
    # The test's module is imported under this name, too.
    assert Counted.made == 1


def test_a_clients_uris_are_chosen_at_random() -> None:
    settings = MetastoreSettings(uris=("grpc://127.0.0.1:1", "grpc://127.0.0.1:2"))
    first = {str(MetastoreClient(settings)._endpoints[0]) for _ in range(200)}
    assert first == set(settings.uris)


def test_the_documented_properties_are_some() -> None:
    (example,) = re.findall(r"```toml\n(\[properties\]\n.*?)```", DOCUMENT, re.DOTALL)
    values = tomllib.loads(example)
    made = config_of({"upstream": {"uris": ["grpc://far:9084"]}, **values})
    assert made.grpc is not None
    assert (made.grpc.server_class, made.grpc.settings.port) == (OURS, 9084)

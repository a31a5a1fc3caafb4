"""SSH routes: what they mean, what is refused, and what OpenSSH configuration files add."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.tunnel.route import Hop, TunnelSettings, by_configuration, parse_route


def test_the_proposals_route() -> None:
    route = "bastionuser@bastion-host.domain -> user@cluster-node.domain"
    assert parse_route(route, ["/k/1.pem", "/k/2.pem"]) == (
        Hop(user="bastionuser", host="bastion-host.domain", keys=("/k/1.pem",)),
        Hop(user="user", host="cluster-node.domain", keys=("/k/2.pem",)),
    )


@pytest.mark.parametrize(
    ("route", "hops"),
    [
        ("host", (Hop(host="host"),)),
        ("u@h:2222->v@[::1]:22", (Hop(user="u", host="h", port=2222), Hop(user="v", host="::1", port=22))),
        (
            "  a@b  ->  c.d  ->e@10.0.0.1",
            (Hop(user="a", host="b"), Hop(host="c.d"), Hop(user="e", host="10.0.0.1")),
        ),
    ],
)
def test_routes(route: str, hops: tuple[Hop, ...]) -> None:
    assert parse_route(route) == hops


@pytest.mark.parametrize(
    "route",
    ["", "->", "a -> ", "a b", "a@", "a@b:", "a@b:0", "a@b:65536", "a@b@c", "a:b", "[::1", "a@b -> -> c"],
)
def test_what_is_no_route(route: str) -> None:
    with pytest.raises(ConfigurationError, match="Hop"):
        parse_route(route)


def test_one_key_serves_all_hops() -> None:
    assert [hop.keys for hop in parse_route("a -> b -> c", ["k"])] == [("k",)] * 3
    with pytest.raises(ConfigurationError, match="3 hops and 2 private keys"):
        parse_route("a -> b -> c", ["k", "l"])


def test_settings_are_checked_and_show_no_secret() -> None:
    with pytest.raises(ConfigurationError):
        TunnelSettings(hops=())
    with pytest.raises(ConfigurationError):
        TunnelSettings(hops=(Hop(host="h"),), timeout_s=0)
    settings = TunnelSettings(
        hops=parse_route("u@h:2222 -> v@::1".replace("::1", "[::1]")), passphrase="hush"
    )
    assert str(settings) == "u@h:2222 -> v@[::1]"
    assert "hush" not in repr(settings)


def test_an_openssh_configuration_completes_hops(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        """
        Host bastion
            HostName bastion.example.com
            Port 2222
            User jump
            IdentityFile /k/bastion
            UserKnownHostsFile /k/known_a /k/known_b
        Host node
            ProxyJump bastion,second@middle:2022
            User hive
        """,
        encoding="utf-8",
    )
    hops, known = by_configuration(parse_route("me@node", ["/k/mine"]), str(config))
    assert hops == (
        Hop(host="bastion.example.com", port=2222, user="jump", keys=("/k/bastion",)),
        Hop(host="middle", port=2022, user="second"),
        Hop(host="node", user="me", keys=("/k/mine",)),
    )
    assert known == ("/k/known_a", "/k/known_b")


def test_configurations_that_do_not_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        by_configuration(parse_route("a"), str(tmp_path / "missing"))
    circle = tmp_path / "circle"
    circle.write_text("Host a\n ProxyJump b\nHost b\n ProxyJump a\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="loop"):
        by_configuration(parse_route("a"), str(circle))

"""Requests over HTTP are well-formed, whatever the settings hold."""

from __future__ import annotations

import socket

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.channel import Deadline
from airflow_hive_federation.metastore.settings import Endpoint
from airflow_hive_federation.metastore.transport import HttpChannel

TOKEN = "Bearer sesame"


def sent(host: str, port: int = 9083) -> list[str]:
    """Return the lines of a request as the server gets it."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with ours, theirs:
        endpoint = Endpoint(scheme="http", host=host, port=port, path="/metastore")
        HttpChannel(ours, endpoint, {"Authorization": TOKEN}, 100).send(b"\r\nbytes", Deadline(5))
        # Head and body come at once.
        return theirs.recv(4096).decode("latin-1").split("\r\n")


def test_a_request_names_its_host_and_its_length_once() -> None:
    lines = sent("hms.example.org")
    assert lines[0] == "POST /metastore HTTP/1.1"
    assert lines[-3:] == ["", "", "bytes"]
    assert sorted(lines[1:-3]) == sorted(
        [
            "Host: hms.example.org:9083",
            "Accept-Encoding: identity",
            "Content-Type: application/x-thrift",
            "Accept: application/x-thrift",
            "Content-Length: 7",
            f"Authorization: {TOKEN}",
        ]
    )


def test_an_address_of_ipv6_stands_in_brackets() -> None:
    assert "Host: [::1]:9083" in sent("::1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", f"{TOKEN}\n"),
        ("Authorization", f"{TOKEN}\r\nX-Actor-Username: hive"),
        ("Authorization", f"{TOKEN}\x00"),
        ("Authorization", f"{TOKEN}\u2026"),
        ("X-A:\r\nX-B", TOKEN),
        ("X A", TOKEN),
        ("", TOKEN),
    ],
)
def test_a_header_that_would_be_another_one_is_refused_without_its_value(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        MetastoreSettings(uris=("https://far:1",), http_headers={name: value})
    assert repr(name) in str(refusal.value)
    assert "sesame" not in str(refusal.value)


def test_a_user_that_no_header_can_hold_is_refused() -> None:
    for user in ("a\r\nAuthorization: x", "\u674e"):
        with pytest.raises(ConfigurationError, match="over HTTP"):
            MetastoreSettings(uris=("https://far:1",), user=user)
        MetastoreSettings(uris=("thrift://far:1",), user=user)
    MetastoreSettings(uris=("https://far:1",), user="m\u00fcller", http_headers={"X-A": "a\tb"})


def test_a_path_that_would_end_its_line_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="percent-encoded"):
        MetastoreSettings(uris=("https://far:1/meta store",))

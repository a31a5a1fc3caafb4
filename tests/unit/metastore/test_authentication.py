"""Identities for a metastore: settings refused before a byte is sent, and SASL against a server of bytes."""

from __future__ import annotations

import pickle
import struct
from types import SimpleNamespace

import pytest

from airflow_hive_federation.errors import ConfigurationError, MetastoreAuthenticationError
from airflow_hive_federation.metastore import KerberosSettings, MetastoreSettings, PlainSettings, TlsSettings
from airflow_hive_federation.metastore.channel import Deadline, ForeignProtocol
from airflow_hive_federation.metastore.sasl import SaslChannel
from airflow_hive_federation.metastore.settings import Endpoint
from tests.support.sasl_server import Server, message

PLAIN = PlainSettings(user="alice", password="sesame")
ENDPOINT = Endpoint(scheme="thrift", host="127.0.0.1", port=1)


@pytest.mark.parametrize("principal", ["hive", "hive/_HOST", "hive@A", "/h@A", "hive/@A", "hive/h@"])
def test_no_principal_of_a_server(principal: str) -> None:
    with pytest.raises(ConfigurationError, match="no Kerberos principal"):
        KerberosSettings(server_principal=principal)


def test_the_host_of_a_principal() -> None:
    assert KerberosSettings(server_principal="hive/_HOST@A.B").server_of("Meta.A") == "hive/meta.a@A.B"
    assert KerberosSettings(server_principal="hive/Other@A.B").server_of("meta.a") == "hive/Other@A.B"


def test_who_acts() -> None:
    kerberos = KerberosSettings(server_principal="hive/_HOST@A.B", client_principal="airflow/worker1@A.B")
    assert MetastoreSettings(uris=("thrift://h",), authentication=kerberos).effective_user() == "airflow"
    assert MetastoreSettings(uris=("thrift://localhost",), authentication=PLAIN).effective_user() == "alice"


@pytest.mark.parametrize("uri", ["http://h", "https://h/metastore"])
def test_not_over_http(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="HTTP"):
        MetastoreSettings(uris=(uri,), authentication=KerberosSettings(server_principal="hive/_HOST@A"))


def test_no_password_in_the_open() -> None:
    with pytest.raises(ConfigurationError, match="unencrypted") as caught:
        MetastoreSettings(uris=("thrift://localhost", "thrift://h"), authentication=PLAIN)
    assert "sesame" not in str(caught.value)
    settings = MetastoreSettings(uris=("thrift+tls://h",), authentication=PLAIN)
    assert "sesame" not in repr(settings)
    assert pickle.loads(pickle.dumps(settings)) == settings


def settings(authentication: PlainSettings | KerberosSettings) -> MetastoreSettings:
    return MetastoreSettings(uris=(f"thrift://{ENDPOINT.host}",), authentication=authentication)


def channel(server: Server) -> SaslChannel:
    return SaslChannel(server, ENDPOINT, settings(PLAIN), Deadline(5))  # type: ignore[arg-type]


def test_plain() -> None:
    server = Server(
        message(5), struct.pack("!I", 3), b"abc", struct.pack("!I", 0), struct.pack("!I", 1), b"d"
    )
    made = channel(server)
    assert server.received == message(1, b"PLAIN") + message(5, b"\0alice\0sesame")
    server.received = b""
    made.send(b"question", Deadline(5))
    assert server.received == b"\0\0\0\x08question"
    assert b"".join(made.receive(2, Deadline(5)) for _ in range(3)) == b"abcd"


@pytest.mark.parametrize("status", [3, 4])
def test_a_refusal(status: int) -> None:
    with pytest.raises(MetastoreAuthenticationError, match="not you") as caught:
        channel(Server(message(status, b"not you")))
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("answer", [b"", b"\x80\x01\0\x01\0", message(5)[:3]])
def test_no_sasl(answer: bytes) -> None:
    with pytest.raises(ForeignProtocol, match="SASL"):
        channel(Server(answer))


def test_a_frame_without_end() -> None:
    made = channel(Server(message(5), b"\xff\xff\xff\xff"))
    with pytest.raises(ForeignProtocol, match="frame"):
        made.receive(1, Deadline(5))


def test_without_gssapi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gssapi", None)
    kerberos = KerberosSettings(server_principal="hive/_HOST@A")
    with pytest.raises(ConfigurationError, match="needs the package gssapi"):
        SaslChannel(SimpleNamespace(), ENDPOINT, settings(kerberos), Deadline(5))  # type: ignore[arg-type]


@pytest.mark.parametrize("uri", ["http://far:1", "HTTP://far:1/x"])
def test_headers_do_not_travel_in_the_clear(uri: str) -> None:
    headers = {"Authorization": "Bearer sesame"}
    with pytest.raises(ConfigurationError, match="unencrypted") as caught:
        MetastoreSettings(uris=("https://near:1", uri), http_headers=headers)
    assert "sesame" not in str(caught.value)
    MetastoreSettings(uris=("http://127.0.0.1:1", "https://far:1"), http_headers=headers)


def test_tls_files_beside_http() -> None:
    with pytest.raises(ConfigurationError, match="does without TLS"):
        MetastoreSettings(uris=("http://127.0.0.1:1",), tls=TlsSettings(ca_file="/ca"))

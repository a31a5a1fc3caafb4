"""Settings: what is accepted, what is refused, what is not shown."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore import (
    KerberosSettings,
    MetastoreClient,
    MetastoreSettings,
    TlsSettings,
)
from airflow_hive_federation.metastore.grpc_settings import GrpcSettings, grpc_properties


@pytest.mark.parametrize(
    ("uri", "endpoint"),
    [
        ("thrift://h", "thrift://h:9083"),
        ("thrift://h:1", "thrift://h:1"),
        ("thrift+tls://h", "thrift+tls://h:9083"),
        ("thrift://[::1]:9", "thrift://[::1]:9"),
        ("http://h:9001", "http://h:9001/metastore"),
        ("https://h/hms", "https://h:443/hms"),
        ("grpc://h", "grpc://h:9084"),
        ("grpc+tls://[::1]:9", "grpc+tls://[::1]:9"),
    ],
)
def test_uris(uri: str, endpoint: str) -> None:
    assert str(MetastoreSettings(uris=(uri,)).endpoints()[0]) == endpoint


@pytest.mark.parametrize(
    "uri", ["", "h:9083", "hive2://h:1", "thrift://", "thrift://h:x", "thrift://h:99999"]
)
def test_what_is_no_uri_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="no metastore URI"):
        MetastoreSettings(uris=(uri,))


def test_a_password_in_a_uri_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as caught:
        MetastoreSettings(uris=("thrift://me:s3cret@h:9083",))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("uri", ["thrift://h:9083?x=s3cret", "https://h/m?token=s3cret", "grpc://h#s3cret"])
def test_a_query_in_a_uri_is_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="of host h has a query or a fragment") as caught:
        MetastoreSettings(uris=("thrift://other:9083", uri))
    assert "s3cret" not in str(caught.value)


def test_secrets_are_not_shown() -> None:
    settings = MetastoreSettings(
        uris=("https://h",),
        http_headers={"Authorization": "Bearer s3cret"},
        tls=TlsSettings(key_password="s3cret"),
    )
    assert "s3cret" not in repr(settings)


def test_settings_can_be_sent_to_another_process() -> None:
    settings = MetastoreSettings(uris=("thrift://h",), http_headers={"a": "b"}, tls=TlsSettings(ca_file="x"))
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_nothing_to_connect_to_and_no_time_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="No metastore URI"):
        MetastoreSettings(uris=())
    with pytest.raises(ConfigurationError, match="call_timeout_s is 0"):
        MetastoreSettings(uris=("thrift://h",), call_timeout_s=0)


@pytest.mark.parametrize(
    ("uri", "others", "plain"),
    [
        ("grpc://far", {}, False),
        ("grpc://far", {"grpc": GrpcSettings(plaintext=True)}, True),
        ("grpc://127.0.0.1", {}, True),
        ("grpc://127.0.0.1", {"tls": TlsSettings()}, False),
        ("grpc+tls://127.0.0.1", {}, False),
        ("grpc+tls://far", {"grpc": GrpcSettings(plaintext=True)}, False),
    ],
    ids=["far", "far_plain", "here", "here_with_files", "here_tls", "far_tls"],
)
def test_grpc_means_tls_except_on_this_machine(uri: str, others: dict[str, Any], plain: bool) -> None:
    settings = MetastoreSettings(uris=(uri,), **others)
    assert settings.is_plaintext_grpc(settings.endpoints()[0]) is plain


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"uris": ("thrift://h",), "grpc": GrpcSettings(audience="x")}, "no URI is grpc://"),
        ({"tls": TlsSettings(), "grpc": GrpcSettings(plaintext=True)}, "do without TLS"),
        ({"tls": TlsSettings(verify=False)}, "verifies its server's certificate always"),
        ({"grpc": GrpcSettings(plaintext=True, token="s3cret")}, "would travel to grpc://h:9084"),
        ({"authentication": KerberosSettings(server_principal="hive/h@R")}, "do not go over HTTP or gRPC"),
    ],
    ids=["no_uri", "tls_and_plain", "no_verification", "token_in_plain", "kerberos"],
)
def test_what_grpc_does_not_carry_is_refused(others: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        MetastoreSettings(**{"uris": ("grpc://h",), **others})
    assert "s3cret" not in str(caught.value)


def test_settings_of_the_design() -> None:
    named = "metastore.custom.client.class"
    assert grpc_properties({}) == {}
    assert grpc_properties({named: "a.B"}) == grpc_properties({"metastore.client.impl": "a.B"})
    with pytest.raises(ConfigurationError, match="different classes"):
        grpc_properties({named: "a.B", "metastore.client.impl": "a.C"})
    given = {"metastore.grpc.service.account.keyfile": "/k", "metastore.grpc.audience": "gw"}
    assert grpc_properties(given)["grpc"] == GrpcSettings(service_account_keyfile="/k", audience="gw")
    assert grpc_properties({"metastore.grpc.cluster": "C2 "})["grpc"] == GrpcSettings(cluster="C2")
    with pytest.raises(ConfigurationError, match=r"'C2\\n' cannot be the name of a cluster"):
        GrpcSettings(cluster="C2\n")


@pytest.mark.parametrize("path", ["no.such.Class", "Class", "pathlib.Path", "pathlib.nothing"])
def test_a_client_class_that_is_none(path: str) -> None:
    settings = MetastoreSettings(uris=("thrift://h",), client_class=path)
    with pytest.raises(ConfigurationError, match=f"client.class names '{path}'"):
        MetastoreClient(settings)


def test_without_grpcio_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.delitem(sys.modules, "airflow_hive_federation.metastore.grpc_channel", raising=False)
    with (
        MetastoreClient(MetastoreSettings(uris=("grpc://127.0.0.1:1",))) as client,
        pytest.raises(ConfigurationError, match=r"Install airflow-hive-federation\[grpc\]"),
    ):
        client.connect()


def test_the_channel_needs_no_part_of_the_gateway() -> None:
    """In a process of its own: what tests import beside it would hide what it lacks."""
    code = """
from airflow_hive_federation.errors import MetastoreUnreachableError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings

with MetastoreClient(MetastoreSettings(uris=("grpc://127.0.0.1:1",), connect_timeout_s=5)) as client:
    try:
        client.connect()
    except MetastoreUnreachableError:
        print("unreachable")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "unreachable\n"

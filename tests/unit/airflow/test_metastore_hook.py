from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.compat import redact
from airflow_hive_federation.hooks.metastore import EXTRAS, HiveMetastoreHook, common_storage_options
from airflow_hive_federation.metastore.client import MetastoreClient
from airflow_hive_federation.metastore.grpc_settings import GrpcSettings
from airflow_hive_federation.metastore.message_bounds import MAX_MESSAGE_BYTES
from airflow_hive_federation.metastore.settings import DelegationTokenSettings
from tests.support.delegation_tokens import TOKEN

Define = Callable[..., str]


@pytest.mark.parametrize(
    ("fields", "uris"),
    [
        ({"host": "h"}, ("thrift://h:9083",)),
        ({"host": "h", "port": 9999}, ("thrift://h:9999",)),
        ({"host": "h", "schema": "thrift+tls"}, ("thrift+tls://h:9083",)),
        ({"host": "h", "extra": {"transport": "https"}}, ("https://h:443/metastore",)),
        (
            {"host": "h", "port": 9001, "extra": {"transport": "http", "http_path": "/hms"}},
            ("http://h:9001/hms",),
        ),
        ({"host": "https://h/hms"}, ("https://h:443/hms",)),
        ({"host": "::1"}, ("thrift://[::1]:9083",)),
        ({"extra": {"uris": "thrift://a, thrift://b:1,"}}, ("thrift://a:9083", "thrift://b:1")),
        ({"extra": {"uris": "grpc://a, grpc+tls://b:1"}}, ("grpc://a:9084", "grpc+tls://b:1")),
        ({"host": "h", "extra": {"transport": "grpc"}}, ("grpc://h:9084",)),
    ],
)
def test_uris(connection: Define, fields: dict[str, Any], uris: tuple[str, ...]) -> None:
    settings = HiveMetastoreHook(connection(**fields)).settings
    assert tuple(str(endpoint) for endpoint in settings.endpoints()) == uris


def test_what_the_form_sends(connection: Define) -> None:
    """The form sends every field, the empty ones as null or as an empty text."""
    extra: dict[str, Any] = dict.fromkeys(EXTRAS - {"http_headers"}) | {
        "catalog": "",
        "call_timeout_s": 20,
        "connect_timeout_s": "2.5",
    }
    settings = HiveMetastoreHook(connection(host="h", login="ann", extra=extra)).settings
    assert (settings.catalog, settings.user) == ("hive", "ann")
    assert (settings.call_timeout_s, settings.connect_timeout_s) == (20.0, 2.5)
    assert settings.max_answer_bytes == MAX_MESSAGE_BYTES
    assert settings.tls is None


@pytest.mark.parametrize("given", [1048576, "1048576", 1048576.0])
def test_the_bound_of_answers(connection: Define, given: Any) -> None:
    hook = HiveMetastoreHook(connection(host="h", extra={"max_answer_bytes": given}))
    assert hook.settings.max_answer_bytes == 1 << 20


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"host": "h", "extra": {"call_timeout_s": 0}}, "call_timeout_s", "call_timeout_s is 0.0."),
        ({"host": "h", "extra": {"max_answer_bytes": 0}}, "max_answer_bytes", "max_answer_bytes is 0."),
        ({"extra": {"uris": "thirft://a:1"}}, "uris", "'thirft://a:1' is no metastore URI."),
        ({"host": "ann@h"}, "host", "the host names a user before the server."),
        ({"host": "thrift://ann:hidden@h:9083"}, "host", "the host names a user before the server."),
        ({"host": "thrift://a:9083,thrift://b:9083"}, "host", "the host names several servers."),
        ({"extra": {"uris": "thrift://[hidden]:1"}}, "uris", "A metastore URI is malformed"),
        ({"extra": {"uris": "thrift:ann:hidden@h"}}, "uris", "names a user before its host"),
        ({"host": "h", "extra": {"call_timeout_s": "nan"}}, "call_timeout_s", "call_timeout_s is nan."),
        ({"host": "h", "extra": {"call_timeout_s": 1e12}}, "call_timeout_s", "is 1000000000000.0."),
        ({"host": "h", "extra": {"connect_timeout_s": "inf"}}, "connect_timeout_s", "is inf."),
        ({"host": "h", "extra": {"ssh_route": "u@h", "ssh_timeout_s": "inf"}}, "ssh_timeout_s", "is inf s."),
        ({"host": "h", "extra": "tls_key_password=hidden"}, "extra", "the extra is no JSON object."),
        ({"host": "h", "extra": ["hidden"]}, "extra", "the extra is no JSON object."),
        ({"host": "h", "conn_type": "spark"}, "conn_type", "is of type 'spark'"),
        ({"extra": {"uris": "thrift://ann:hidden@a"}}, "uris", "names a user before its host"),
        ({"extra": {"uris": "thrift://a?token=hidden"}}, "uris", "has a query or a fragment"),
        ({"host": "h", "extra": {"grpc_cluster": "C2"}}, "host", "settings of gRPC, and no URI is grpc://."),
        (
            {"host": "h", "login": "ann", "password": "hidden"},
            "password",
            "password would travel to thrift://h",
        ),
        (
            {"host": "h", "extra": {"kerberos_principal": "hive"}},
            "kerberos_principal",
            "'hive' is no Kerberos",
        ),
        ({"host": "h", "extra": {"delegation_token": "hidden"}}, "delegation_token", "token"),
        (
            {"extra": {"uris": "http://h", "http_bearer_token": "hidden"}},
            "http_headers",
            "travel to http://h",
        ),
        ({"extra": {"uris": "http://h", "tls_ca_file": "ca"}}, "tls_…", "There are TLS files for http://h"),
        ({"host": "h", "extra": {"ssh_route": "u@"}}, "ssh_route", "'u@', which is not user@host"),
        ({"host": "h", "extra": {"ssh_route": "u@h", "ssh_timeout_s": 0}}, "ssh_timeout_s", "is 0.0 s."),
        ({"host": "h", "extra": {"ssh_timeout_s": 3}}, "ssh_route", "and no 'ssh_route'."),
    ],
)
def test_impossible_settings_name_their_connection(
    connection: Define, fields: dict[str, Any], field: str, message: str
) -> None:
    """A task has two connections or three."""
    conn_id = connection(**fields)
    with pytest.raises(ConfigurationError, match=rf"^Connection '{conn_id}'") as caught:
        _ = HiveMetastoreHook(conn_id).settings
    error = caught.value
    assert message in error.message
    assert field.removeprefix("conn_") in error.message
    assert (error.facts["conn_id"], error.facts["field"]) == (conn_id, field)
    assert error.remedy
    assert error.message.count("Connection ") == 1
    assert "hidden" not in f"{error}{error.facts}"


def test_tls_and_headers(connection: Define) -> None:
    extra = {
        "uris": "https://h/hms",
        "tls_ca_file": "ca.pem",
        "tls_cert_file": "our.pem",
        "tls_key_password": "pass-of-key",
        "http_headers": '{"x-team": "data"}',
        "http_bearer_token": "token-of-ours",
    }
    settings = HiveMetastoreHook(connection(extra=extra)).settings
    assert settings.tls is not None
    assert (settings.tls.ca_file, settings.tls.key_password) == ("ca.pem", "pass-of-key")
    assert settings.http_headers == {"x-team": "data", "Authorization": "Bearer token-of-ours"}
    assert "token-of-ours" not in repr(settings)
    assert "pass-of-key" not in repr(settings)


def test_grpc(connection: Define) -> None:
    extra = {"uris": "grpc://h", "grpc_token": "token-of-ours", "grpc_plaintext": "false"}
    settings = HiveMetastoreHook(connection(extra=extra)).settings
    assert settings.grpc == GrpcSettings(token="token-of-ours")
    assert "token-of-ours" not in repr(settings)
    extra = {"uris": "grpc://h", "grpc_keyfile": "/k.json", "grpc_audience": "gw", "grpc_cluster": "C2"}
    settings = HiveMetastoreHook(connection(extra=extra)).settings
    assert settings.grpc == GrpcSettings(service_account_keyfile="/k.json", audience="gw", cluster="C2")
    extra = {"uris": "grpc://h", "grpc_plaintext": "true"}
    assert HiveMetastoreHook(connection(extra=extra)).settings.grpc.plaintext


def test_a_delegation_token(connection: Define) -> None:
    token = TOKEN.decode()
    settings = HiveMetastoreHook(connection(host="h", extra={"delegation_token": token})).settings
    assert settings.authentication == DelegationTokenSettings(token=token)
    assert settings.effective_user() == "alice"
    assert token not in f"{settings!r}"
    assert redact(f"the token {token}") == "the token ***"


def test_a_client_class_takes_the_place_of_the_client(connection: Define) -> None:
    extra = {"client_class": f"{OwnClient.__module__}.OwnClient"}
    hook = HiveMetastoreHook(connection(host="h", extra=extra))
    assert type(hook.client()) is OwnClient
    with hook.pool(1).client() as client:
        assert type(client) is OwnClient
    wrong = HiveMetastoreHook(connection(host="h", extra={"client_class": "pathlib.Path"}))
    with pytest.raises(ConfigurationError, match=r"metastore\.custom\.client\.class names 'pathlib.Path'"):
        wrong.client()


class OwnClient(MetastoreClient):
    """Somebody's own."""


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"host": "h", "extra": {"grpc_plaintext": "perhaps"}}, "'grpc_plaintext' is 'perhaps'"),
        ({"host": "h", "extra": {"grpc_token": "secret-1"}}, "no URI is grpc://"),
        (
            {"extra": {"uris": "grpc://h", "grpc_plaintext": "true", "grpc_token": "secret-1"}},
            "would travel to grpc://h:9084 unencrypted",
        ),
        ({"extra": {"uris": "grpc://h", "grpc_token": "secret-1", "grpc_keyfile": "x"}}, "several sources"),
        ({"host": "h", "extra": {"catalogue": "hive"}}, r"not known: catalogue\..*Known extras are call_"),
        ({}, "names no metastore"),
        ({"host": "h", "schema": "ftp"}, "transport 'ftp'"),
        ({"host": "h", "extra": {"call_timeout_s": "soon"}}, "'call_timeout_s' is 'soon'"),
        ({"host": "h", "extra": {"call_timeout_s": -1}}, "call_timeout_s is -1"),
        ({"host": "h", "extra": {"max_answer_bytes": "1 GB"}}, "'max_answer_bytes' is '1 GB'"),
        ({"host": "h", "extra": {"max_answer_bytes": -5}}, "'max_answer_bytes' is '-5'"),
        ({"host": "h", "extra": {"max_answer_bytes": 0}}, "max_answer_bytes is 0"),
        ({"host": "h", "extra": {"http_headers": "no json"}}, "'http_headers' is no JSON object"),
        ({"host": "h", "extra": {"http_bearer_token": "secret-1"}}, "does not carry"),
        ({"host": "h", "extra": {"tls_key_password": ["secret-1"]}}, "'tls_key_password' is neither a text"),
        ({"host": "h", "extra": {"delegation_token": "secret-1"}}, "not in Hadoop's form"),
        (
            {"host": "h", "extra": {"delegation_token": "secret-1", "kerberos_keytab": "/k"}},
            "another authentication",
        ),
    ],
)
def test_refused(connection: Define, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        _ = HiveMetastoreHook(connection(**fields)).settings
    assert "secret-1" not in str(caught.value)


@pytest.mark.parametrize("as_text", [True, False])
def test_storage_options(connection: Define, as_text: bool) -> None:
    shown: Any = {"s3://a": {"endpoint_url": "http://a"}, "s3://b": {}}
    hidden: Any = {"s3://a": {"key": "key-of-a", "secret": "secret-of-a"}}
    extra = {"storage_options": shown, "secret_storage_options": hidden}
    if as_text:
        extra = {name: json.dumps(value) for name, value in extra.items()}
    assert HiveMetastoreHook(connection(host="h", extra=extra)).storage_options == {
        "s3://a": {"endpoint_url": "http://a", "key": "key-of-a", "secret": "secret-of-a"},
        "s3://b": {},
    }


@pytest.mark.parametrize("text", ["no json: sesame", '["sesame"]', '"sesame"'])
def test_storage_options_that_are_no_object(connection: Define, text: str) -> None:
    hook = HiveMetastoreHook(connection(host="h", extra={"secret_storage_options": text}))
    with pytest.raises(ConfigurationError, match="'secret_storage_options' is no JSON object") as caught:
        _ = hook.storage_options
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("name", ["secret", "account_key", "session_token"])
def test_secrets_among_the_options_that_are_shown(connection: Define, name: str) -> None:
    extra = {"storage_options": json.dumps({"s3://a": {name: "sesame", "endpoint_url": "http://a"}})}
    with pytest.raises(ConfigurationError, match=rf"'storage_options': {name}\.") as caught:
        _ = HiveMetastoreHook(connection(host="h", extra=extra)).storage_options
    assert "secret_storage_options" in str(caught.value)
    assert "sesame" not in str(caught.value)


def test_airflow_hides_our_secrets_by_their_names() -> None:
    """As text of the form, and wherever Airflow shows extras: UI, API, command line."""
    secret = {
        "tls_key_password",
        "http_bearer_token",
        "ssh_passphrase",
        "secret_storage_options",
        "grpc_token",
        "delegation_token",
    }
    assert {name for name in EXTRAS if redact("a text", name) == "***"} == secret
    assert redact({"http_headers": {"Authorization": "Bearer x"}}) == {
        "http_headers": {"Authorization": "***"}
    }


def test_secrets_are_masked_wherever_they_turn_up(connection: Define) -> None:
    extra = {"secret_storage_options": {"key": "AKIA-of-ours", "nested": {"list": ["s3cr3t-of-ours"]}}}
    _ = HiveMetastoreHook(connection(host="h", extra=extra)).storage_options
    assert redact("AKIA-of-ours and s3cr3t-of-ours") == "*** and ***"


@pytest.mark.parametrize(
    ("source", "target", "merged"),
    [
        ({"anon": True}, {}, {"anon": True}),
        ({}, {"anon": True}, {"anon": True}),
        ({"anon": True}, {"anon": True}, {"anon": True}),
        ({"s3://a": {"anon": True}}, {"s3://b": {}}, {"s3://a": {"anon": True}, "s3://b": {}}),
        ({"anon": True}, {"anon": False}, None),
        ({"anon": True}, {"profile": "x"}, None),
        ({"s3://a": {"anon": True}}, {"s3://a": {"anon": False}}, None),
    ],
)
def test_storage_options_of_both_ends(
    connection: Define, source: dict[str, Any], target: dict[str, Any], merged: dict[str, Any] | None
) -> None:
    hooks = [
        HiveMetastoreHook(connection(name, host="h", extra={"storage_options": options}))
        for name, options in (("one", source), ("two", target))
    ]
    if merged is not None:
        assert common_storage_options(*hooks) == merged
    else:
        with pytest.raises(ConfigurationError, match="'one' and 'two' have different storage options"):
            common_storage_options(*hooks)


def test_test_button_without_a_server(connection: Define, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    works, text = HiveMetastoreHook(
        connection(host="127.0.0.1", port=1, extra={"secret_storage_options": {"key": "open-sesame"}})
    ).test_connection()
    assert not works
    assert "127.0.0.1:1" in text
    assert "open-sesame" not in text + caplog.text
    works, text = HiveMetastoreHook(connection(host="h", extra={"nonsense": 1})).test_connection()
    assert (works, "nonsense" in text) == (False, True)

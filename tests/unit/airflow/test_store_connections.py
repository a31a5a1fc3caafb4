"""Storage options that name connections of Azure and Google; their providers are not installed here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.cli import connecting
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.compat import redact
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook, common_storage_options

Define = Callable[..., str]

KEY = {
    "type": "service_account",
    "client_email": "reader@project.iam.gserviceaccount.com",
    "private_key": "-----BEGIN tahini-key",
    "private_key_id": "sesame-id",
    "token_uri": "https://oauth2.googleapis.com/token",
}


def options_of(connection: Define, named: dict[str, Any]) -> Any:
    """The storage options of a metastore whose connection has these."""
    return HiveMetastoreHook(connection("far", host="far", extra={"storage_options": named})).storage_options


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # Of type adls: the host is the account's name.
        (
            {"conn_type": "adls", "host": "lake", "password": "tahini-1"},
            {"account_name": "lake", "account_key": "tahini-1"},
        ),
        (
            {
                "conn_type": "adls",
                "host": "lake",
                "login": "a-client",
                "password": "tahini-2",
                "extra": {"tenant_id": "a-tenant", "connection_string": ""},
            },
            {
                "account_name": "lake",
                "tenant_id": "a-tenant",
                "client_id": "a-client",
                "client_secret": "tahini-2",
            },
        ),
        # Of type wasb: the login is the account's name, or the host its URL.
        (
            {"conn_type": "wasb", "login": "lake", "password": "tahini-3"},
            {"account_name": "lake", "account_key": "tahini-3"},
        ),
        (
            {"conn_type": "wasb", "login": "lake", "extra": {"extra__wasb__shared_access_key": "tahini-4"}},
            {"account_name": "lake", "account_key": "tahini-4"},
        ),
        (
            {
                "conn_type": "wasb",
                "host": "https://lake.blob.core.windows.net/",
                "extra": {"sas_token": "https://lake.blob.core.windows.net/?sv=1&sig=tahini-5"},
            },
            {"account_name": "lake", "sas_token": "sv=1&sig=tahini-5"},
        ),
        (
            {"conn_type": "wasb", "extra": {"connection_string": "AccountName=lake;AccountKey=tahini-6"}},
            {"connection_string": "AccountName=lake;AccountKey=tahini-6"},
        ),
        # Another cloud of Azure; the machine's identity.
        (
            {"conn_type": "adls", "host": "https://lake.dfs.core.chinacloudapi.cn"},
            {"account_name": "lake", "account_host": "lake.blob.core.chinacloudapi.cn"},
        ),
    ],
)
def test_azure(connection: Define, fields: dict[str, Any], expected: dict[str, str]) -> None:
    lake = connection("lake", **fields)
    assert options_of(connection, {"azure_conn_id": lake}) == expected
    assert options_of(connection, {"abfs://box": {"azure_conn_id": lake, "blocksize": 7}}) == {
        "abfs://box": {**expected, "blocksize": 7}
    }
    for value in expected.values():
        if "tahini" in value:
            assert redact(f"key {value}") == "key ***"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"conn_type": "adls", "password": "tahini"}, "no storage account"),
        ({"conn_type": "adls", "host": "h", "extra": {"tenant_id": "t"}}, "no login and no password"),
        ({"conn_type": "wasb", "login": "h", "extra": {"managed_identity_client_id": "x"}}, "managed_ident"),
        ({"conn_type": "aws", "login": "h"}, "of type aws, not adls or wasb"),
    ],
)
def test_azure_refused(connection: Define, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        options_of(connection, {"azure_conn_id": connection("lake", **fields)})
    assert "tahini" not in str(caught.value)


def test_a_key_file_of_google(connection: Define, tmp_path: Path) -> None:
    """Airflow does not know its content, which is masked all the same."""
    key = {**KEY, "private_key": "paprika-key", "private_key_id": "cumin-id"}
    path = tmp_path / "key.json"
    path.write_text(json.dumps(key))
    lake = connection("lake", conn_type="google_cloud_platform", extra={"key_path": str(path)})
    assert options_of(connection, {"gcp_conn_id": lake}) == {"token": key}
    assert redact("paprika-key and cumin-id") == "*** and ***"


def test_google(connection: Define, tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    path.write_text(json.dumps(KEY))
    for extra in (
        {"key_path": str(path), "project": "p", "num_retries": 5},
        {"keyfile_dict": json.dumps(KEY), "project": "p", "scope": "https://all"},
        {"extra__google_cloud_platform__keyfile_dict": KEY, "project": "p"},
    ):
        lake = connection("lake", conn_type="google_cloud_platform", extra=extra)
        expected = {"token": KEY, "project": "p"}
        assert options_of(connection, {"gcp_conn_id": lake}) == expected
        end = connecting.end_for("far")
        assert end.storage_options == expected
        assert "tahini" not in repr(end)
    assert redact(f"{KEY['private_key']} and {KEY['private_key_id']}") == "*** and ***"
    lake = connection("lake", conn_type="google_cloud_platform", extra={})
    assert options_of(connection, {"gs://b": {"gcp_conn_id": lake}}) == {
        "gs://b": {"token": "google_default"}
    }
    lake = connection("lake", conn_type="google_cloud_platform", extra={"is_anonymous": True})
    assert options_of(connection, {"gcp_conn_id": lake, "endpoint_url": "u"}) == {
        "token": "anon",
        "endpoint_url": "u",
    }


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ({"keyfile_dict": '{"tahini'}, "is no service account"),
        ({"keyfile_dict": {"type": "external_account", "x": "tahini"}}, "is no service account"),
        ({"keyfile_dict": {**KEY, "private_key": ""}, "key_path": "/k"}, "key_path and keyfile_dict"),
        ({"keyfile_dict": {"type": "service_account", "token_uri": "u"}}, "lacks client_email, private_key"),
        ({"key_path": "/no/such/key.json"}, "/no/such/key.json, cannot be read"),
        ({"impersonation_chain": "x", "key_secret_name": "y"}, "impersonation_chain, key_secret_name"),
    ],
)
def test_google_refused(connection: Define, extra: dict[str, Any], why: str) -> None:
    lake = connection("lake", conn_type="google_cloud_platform", extra=extra)
    with pytest.raises(ConfigurationError, match=why) as caught:
        options_of(connection, {"gcp_conn_id": lake})
    assert "tahini" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_options_of_one_prefix_name_one_connection(connection: Define) -> None:
    with pytest.raises(ConfigurationError, match="several stores: aws_conn_id, gcp_conn_id"):
        options_of(connection, {"aws_conn_id": "a", "gcp_conn_id": "b"})
    with pytest.raises(ConfigurationError, match="no Airflow connection 'nobody' of type adls or wasb"):
        options_of(connection, {"azure_conn_id": "nobody"})


def test_ends_of_a_replication_in_two_clouds(connection: Define) -> None:
    lake = connection("lake", conn_type="adls", host="lake", password="tahini")
    cloud = connection("cloud", conn_type="google_cloud_platform", extra={})
    written = {"abfs://box": {"azure_conn_id": lake}, "gs://bucket": {"gcp_conn_id": cloud}}
    names = [
        connection(name, host="h", extra={"storage_options": {prefix: options}})
        for name, (prefix, options) in zip(("one", "two"), written.items(), strict=True)
    ]
    assert common_storage_options(*map(HiveMetastoreHook, names)) == {
        "abfs://box": {"account_name": "lake", "account_key": "tahini"},
        "gs://bucket": {"token": "google_default"},
    }


def test_a_connection_string_is_a_secret(connection: Define) -> None:
    with pytest.raises(ConfigurationError, match=r"secrets in the visible extra .*connection_string"):
        options_of(connection, {"connection_string": "AccountName=lake;AccountKey=tahini"})

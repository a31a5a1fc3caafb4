"""Connections of type ``aws`` with the Amazon provider, which is not installed here: a double of its hook."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from airflow_hive_federation.cli import connecting
from airflow_hive_federation.hooks import aws
from airflow_hive_federation.hooks.compat import redact
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook, common_storage_options

Define = Callable[..., str]


@pytest.fixture(autouse=True)
def _assumed_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each session have credentials of its own, as those of an assumed role are."""
    numbers = itertools.count(1)

    class AwsGenericHook:
        def __init__(self, aws_conn_id: str, client_type: str) -> None:
            url = f"http://{client_type}.{aws_conn_id}"
            self.conn_config = SimpleNamespace(get_service_endpoint_url=lambda _service: url)

        def get_session(self) -> Any:
            number = next(numbers)
            return boto3.Session(
                aws_access_key_id=f"key-{number}",
                aws_secret_access_key=f"tahini-{number}",
                aws_session_token=f"token-of-a-role-{number}",
                region_name="eu-central-1",
            )

    module = SimpleNamespace(AwsGenericHook=AwsGenericHook)
    monkeypatch.setattr(aws, "_providers_hooks", lambda: module)


def credentials(number: int) -> dict[str, Any]:
    return {
        "key": f"key-{number}",
        "secret": f"tahini-{number}",
        "token": f"token-of-a-role-{number}",
        "client_kwargs": {"endpoint_url": "http://s3.lake", "region_name": "eu-central-1"},
    }


def test_credentials_of_a_role(connection: Define) -> None:
    options = {"aws_conn_id": connection("lake")}
    hook = HiveMetastoreHook(connection(host="h", extra={"storage_options": options}))
    assert hook.storage_options == hook.storage_options == credentials(1)
    assert redact("tahini-1 and token-of-a-role-1") == "*** and ***"
    end = connecting.end_for("hive")
    assert "tahini" not in repr(end)
    assert end.storage_options == end.storage_options == credentials(2)


@pytest.mark.parametrize("prefix", ["", "s3://lake"])
def test_both_ends_may_name_one_connection(connection: Define, prefix: str) -> None:
    """Its role gives other credentials each time that it is assumed."""
    named = {"aws_conn_id": connection("lake")}
    extra = {"storage_options": {prefix: named} if prefix else named}
    names = [connection(name, host="h", extra=extra) for name in ("one", "two")]
    for number, merged in enumerate(
        (
            common_storage_options(*map(HiveMetastoreHook, names)),
            connecting.common_storage_options(*map(connecting.end_for, names)),
        ),
        1,
    ):
        assert merged == ({prefix: credentials(number)} if prefix else credentials(number))

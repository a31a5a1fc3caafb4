"""Airflow reads the provider's description; test_airflow_provider.py uses a real Airflow."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest
from airflow.sdk import BaseHook, BaseOperator, Connection
from airflow.triggers.base import BaseTrigger

from airflow_hive_federation.hooks.metastore import EXTRAS, TRANSPORTS
from airflow_hive_federation.provider import get_provider_info

INFO = get_provider_info()
(CONNECTION_TYPE,) = INFO["connection-types"]


def test_the_entry_point_is_ours() -> None:
    (entry_point,) = (
        point
        for point in entry_points(group="apache_airflow_provider")
        if point.dist is not None and point.dist.name == "airflow-hive-federation"
    )
    assert entry_point.load() is get_provider_info


@pytest.mark.parametrize("name", ["provider_info.schema.json", "provider.yaml.schema.json"])
def test_the_schema_of_airflow(name: str) -> None:
    schema = json.loads((Path(airflow.__file__).parent / name).read_text("utf-8"))
    # The second one is of the whole provider.yaml: its other fields are Airflow's own affair.
    schema.pop("required", None)
    schema["additionalProperties"] = True
    jsonschema.validate({key: INFO[key] for key in INFO if key not in {"integrations"}}, schema)


@pytest.mark.parametrize(
    ("key", "base"),
    [("operators", BaseOperator), ("sensors", BaseOperator), ("hooks", BaseHook), ("triggers", BaseTrigger)],
)
def test_every_module_has_what_it_is_listed_for(key: str, base: type[Any]) -> None:
    for listed in INFO[key]:
        for name in listed["python-modules"]:
            classes = [value for _, value in inspect.getmembers(import_module(name), inspect.isclass)]
            assert any(issubclass(member, base) and member.__module__ == name for member in classes), name


def test_the_form_has_the_extras_of_the_hook() -> None:
    module, _, name = CONNECTION_TYPE["hook-class-name"].rpartition(".")
    hook = getattr(import_module(module), name)
    assert hook.conn_type == CONNECTION_TYPE["connection-type"]
    assert hook.hook_name == CONNECTION_TYPE["hook-name"]
    fields = CONNECTION_TYPE["conn-fields"]
    assert set(fields) == EXTRAS - {"http_headers"}
    assert fields["transport"]["schema"]["enum"] == list(TRANSPORTS)
    hidden = {name for name, field in fields.items() if field["schema"].get("format") == "password"}
    assert hidden == {
        "tls_key_password",
        "http_bearer_token",
        "ssh_passphrase",
        "secret_storage_options",
        "grpc_token",
        "delegation_token",
    }


def test_a_connection_survives_its_uri() -> None:
    """A scheme has no underscore: Airflow writes ``hive-federation``, and reads it as the connection type."""
    uris = "thrift://a:9083,thrift://b:9083"
    connection = Connection(
        conn_id="hive",
        conn_type=CONNECTION_TYPE["connection-type"],
        host="h",
        extra=json.dumps({"uris": uris}),
    )
    uri = connection.get_uri()
    assert uri.startswith("hive-federation://")
    again = Connection.from_uri(uri, conn_id="hive")
    assert (again.conn_type, again.host, again.extra_dejson) == ("hive_federation", "h", {"uris": uris})


def test_importing_the_operators_in_a_dag_is_light() -> None:
    """Airflow parses DAG files over and over: nothing heavy may come with ours."""
    code = """
import json, sys
import airflow.sdk, airflow.triggers.base, airflow_hive_federation.hooks.compat
for name in ("BaseOperator", "BaseHook", "BaseSensorOperator", "Connection", "TaskGroup", "TriggerRule"):
    getattr(airflow.sdk, name)
for name in ("Asset", "AssetAlias", "BaseOperatorLink", "task_group"):
    getattr(airflow.sdk, name)
before = set(sys.modules)
import airflow_hive_federation.operators.replication, airflow_hive_federation.operators.compaction
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    added = json.loads(done.stdout.splitlines()[-1])
    foreign = [name for name in added if not name.startswith("airflow_hive_federation")]
    assert foreign == []
    heavy = ("metastore", "embedded", "acid", "storage", "spark", "model")
    assert [name for name in added if name.removeprefix("airflow_hive_federation.").startswith(heavy)] == []

"""Airflow finds the page; test_airflow_standalone.py opens it in a browser."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from airflow_hive_federation import plugin
from airflow_hive_federation.plugin.registration import (
    NAME,
    PREFIX,
    HiveFederationPlugin,
    PageApp,
    script_url,
)
from airflow_hive_federation.provider import get_provider_info

SCRIPT = Path(plugin.__file__).with_name("page.js")


def test_the_entry_point_is_the_plugin_of_the_provider() -> None:
    (point,) = (point for point in entry_points(group="airflow.plugins") if point.name == "hive_federation")
    assert point.load() is HiveFederationPlugin
    (listed,) = get_provider_info()["plugins"]  # type: ignore[attr-defined]
    assert listed["plugin-class"] == f"{HiveFederationPlugin.__module__}.{HiveFederationPlugin.__name__}"
    assert listed["name"] == HiveFederationPlugin.name


@pytest.mark.parametrize(
    ("base_url", "path"),
    [
        ("http://localhost:8080", f"{PREFIX}/page.js"),
        ("https://example.com/airflow/", f"/airflow{PREFIX}/page.js"),
        ("https://example.com/a/b", f"/a/b{PREFIX}/page.js"),
    ],
)
def test_the_script_lies_below_the_base_url(
    monkeypatch: pytest.MonkeyPatch, base_url: str, path: str
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    assert script_url() == path


def test_the_script_names_no_place_of_its_own() -> None:
    """Addresses are relative to the script's, so that a prefix holds for them, too; no markup is parsed."""
    text = SCRIPT.read_text(encoding="utf-8")
    assert f'const NAME = "{NAME}";' in text
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    assert not re.findall(r"""["'`]/\w""", code)
    assert not re.search(r"innerHTML|dangerously|insertAdjacent|document\.write|eval\(|https?://", code)


def test_other_processes_than_api_servers_load_no_server() -> None:
    code = """
import sys
import airflow_hive_federation.plugin.registration
print("fastapi" in sys.modules, "airflow_hive_federation.plugin.app" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split()[-2:] == ["False", "False"]


def test_the_application_is_built_at_the_first_request() -> None:
    app, sent = PageApp(), []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/nowhere",
        "raw_path": b"/nowhere",
        "query_string": b"",
        "headers": [],
        "root_path": "",
    }
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 404

"""Connections of Airflow, by its environment."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Define a connection of type ``hive_federation`` and return its id."""

    def define(conn_id: str = "hive", **fields: Any) -> str:
        value = json.dumps({"conn_type": "hive_federation", **fields})
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", value)
        return conn_id

    return define

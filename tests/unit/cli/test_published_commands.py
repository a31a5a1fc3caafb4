"""Commands publish state where the environment names a directory, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.cli.main import main
from airflow_hive_federation.published import directory as state
from airflow_hive_federation.published.directory import REPLICATION, StateDirectory

POLICY = """
name = "shop"
source = "thrift://127.0.0.1:1"
target = "thrift://127.0.0.1:1"
source_database = "shop"
dump_root = "/dumps"
"""


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    (path := tmp_path / "shop.toml").write_text(POLICY, encoding="utf-8")
    return str(path)


def test_a_failing_status_is_published(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", f"file:{tmp_path / 'state'}")
    assert main(["replicate", "status", policy]) != 0
    place = StateDirectory(f"file:{tmp_path / 'state'}")
    (key,) = place.keys(REPLICATION)
    cycles = place.read(REPLICATION, key, state.CYCLES)
    assert cycles is not None
    (failed,) = cycles.cycles
    assert failed.error.startswith("MetastoreUnreachableError: ")
    assert failed.by.command == "replicate status"


def test_nothing_is_published_without_a_directory(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", raising=False)
    assert main(["replicate", "status", policy]) != 0
    assert not (tmp_path / "home").exists()

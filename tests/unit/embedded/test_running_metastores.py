"""The announcements of running metastores, which outlive a killed one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from airflow_hive_federation.embedded import metastore
from airflow_hive_federation.embedded.metastore import RunningMetastore, running_metastores


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRFLOW_HIVE_FEDERATION_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "running").mkdir(parents=True)
    return tmp_path / "cache" / "running"


def announce(register: Path, name: str, directory: Path) -> Path:
    path = register / f"{name}.json"
    facts = {"name": name, "port": 1, "jdbc_port": 2, "pid": 3, "directory": str(directory)}
    path.write_text(json.dumps(facts), encoding="utf-8")
    return path


def test_a_start_withdraws_earlier_names_of_its_directory(register: Path, tmp_path: Path) -> None:
    """The new lock would show them as running, and `stop` would signal a process id of the past."""
    (tmp_path / "m").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "m")
    earlier = [announce(register, "moved", tmp_path / "m"), announce(register, "linked", tmp_path / "link")]
    other = announce(register, "other", tmp_path / "n")
    metastore._withdraw(tmp_path / "m")
    assert [path.exists() for path in (*earlier, other)] == [False, False, True]


def test_other_users_keep_their_announcements(
    register: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = announce(register, "theirs", tmp_path / "m")
    monkeypatch.setattr(metastore, "is_locked", lambda _: True)
    assert [running.name for running in running_metastores()] == ["theirs"]
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert running_metastores() == []
    metastore._withdraw(tmp_path / "m")
    assert path.exists()


def test_announcements_of_ended_metastores_go(register: Path, tmp_path: Path) -> None:
    path = announce(register, "ended", tmp_path / "m")
    (register / "torn.json").write_text('{"name": "to', encoding="utf-8")
    (register / "other.json").write_text('{"name": "other", "port": "1"}', encoding="utf-8")
    assert running_metastores() == []
    assert not path.exists()
    assert list(register.iterdir()) == []


def test_a_metastore_is_in_its_directory_by_each_path(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    running = RunningMetastore(name="dev", port=1, jdbc_port=2, pid=3, directory=tmp_path / "m")
    assert running.is_in(tmp_path / "link" / "x" / ".." / "m")
    assert not running.is_in(tmp_path / "x" / "m")

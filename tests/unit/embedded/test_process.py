"""Servers in processes of their own: none stays behind that nobody knows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from airflow_hive_federation.embedded import process
from airflow_hive_federation.embedded.process import end_server, start_server
from airflow_hive_federation.errors import MetastoreStartError

FOREVER = ["sleep", "600"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    processes: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *command: object, **settings: object) -> None:
            super().__init__(*command, **settings)  # type: ignore[call-overload]
            processes.append(self)

    monkeypatch.setattr(process.subprocess, "Popen", Noted)
    return processes


def test_an_interrupted_start_leaves_no_server_behind(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start_server(FOREVER, server="it", log_path=tmp_path / "log", announced=interrupted, timeout_s=60)
    (server,) = started
    assert server.returncode is not None
    assert server.stdin is not None
    assert server.stdin.closed


def test_a_server_that_is_not_ready_in_time_is_ended(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    with pytest.raises(MetastoreStartError, match="it was not ready within 0 s: its log is empty"):
        start_server(FOREVER, server="it", log_path=tmp_path / "log", announced=lambda _: None, timeout_s=0)
    assert started[0].returncode is not None


def test_a_server_is_returned_with_its_announcement(tmp_path: Path) -> None:
    pid, server = start_server(
        FOREVER, server="it", log_path=tmp_path / "log", announced=lambda pid: pid, timeout_s=60
    )
    assert (pid, server.poll()) == (server.pid, None)
    end_server(server)
    assert server.returncode is not None

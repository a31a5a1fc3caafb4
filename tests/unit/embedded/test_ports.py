"""Ports for servers that cannot choose one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from airflow_hive_federation.embedded import jvm


def test_a_free_port_is_none_that_the_system_gives_to_other_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = tmp_path / "given"
    given.write_text("30000\t30100\n", encoding="ascii")
    monkeypatch.setattr(jvm, "_GIVEN_PORTS", given)
    assert 20_000 <= jvm.free_port() < 30_000
    monkeypatch.setattr(jvm, "_GIVEN_PORTS", tmp_path / "absent")
    assert 20_000 <= jvm.free_port() < 49_152


def test_a_port_that_is_taken_is_not_returned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        given = tmp_path / "given"
        given.write_text(f"{taken + 1} 60999\n", encoding="ascii")
        monkeypatch.setattr(jvm, "_GIVEN_PORTS", given)
        monkeypatch.setattr(jvm, "_FIRST_OWN_PORT", taken)
        # Then the system's choice is better than none.
        assert jvm.free_port() != taken
    # So it is where the system may give any port.
    monkeypatch.setattr(jvm, "_FIRST_OWN_PORT", taken + 1)
    assert jvm.free_port() > 0

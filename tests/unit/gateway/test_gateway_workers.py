"""Processes that share ports: their births, deaths and ends, with small commands in place of gateways."""

from __future__ import annotations

import io
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway import workers as module
from airflow_hive_federation.gateway.workers import Workers, reserve_port, reserve_ports
from tests.support.gateways import until

#: Ends when its standard input does, as a gateway.
LIVES = "echo ready; exec cat"
#: Ends in no way but by ``SIGKILL``.
STAYS = "trap '' TERM; echo ready; while true; do sleep 1; done"


def shells(*scripts: str) -> list[list[str]]:
    return [["sh", "-c", script] for script in scripts]


class Stopper:
    """Sends ``SIGTERM`` to the tests' own process once a text of the workers holds a number of lines."""

    def __init__(self, out: io.StringIO, lines: int) -> None:
        self._out, self._lines = out, lines
        self._thread = threading.Thread(target=self._stop)
        self._thread.start()

    def _stop(self) -> None:
        until(lambda: self._out.getvalue().count("\n") >= self._lines)
        os.kill(os.getpid(), signal.SIGTERM)


def test_workers_end_with_the_signal() -> None:
    out = io.StringIO()
    workers = Workers(shells(LIVES, LIVES), out=out)
    Stopper(out, 1)
    assert workers.run() == 0
    assert out.getvalue() == "ready\n"
    assert [process.returncode for process in workers._processes] == [0, 0]


def test_a_worker_that_does_not_end_is_killed() -> None:
    out = io.StringIO()
    workers = Workers(shells(STAYS), out=out, stop_timeout_s=0.1)
    Stopper(out, 1)
    assert workers.run() == 0
    assert [process.returncode for process in workers._processes] == [-signal.SIGKILL]


def test_a_worker_that_ends_at_its_start_ends_all(caplog: pytest.LogCaptureFixture) -> None:
    workers = Workers(shells(LIVES, "exit 3"), out=io.StringIO())
    assert workers.run() == 1
    assert "worker 1 ended with status 3 at its start" in caplog.text
    assert [process.returncode for process in workers._processes] == [0, 3]


def test_a_worker_that_dies_later_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("airflow_hive_federation.gateway.workers._SHORT_LIFE_S", 0.0)
    born = tmp_path / "born"
    out = io.StringIO()
    # The first one ends at once; the second one prints another line.
    script = f"if [ -e {born} ]; then echo again; exec cat; else touch {born}; exit 4; fi"
    workers = Workers(shells(script), out=out)
    Stopper(out, 1)
    assert workers.run() == 0
    assert "worker 0 ended with status 4 and is started again" in caplog.text
    assert out.getvalue() == "again\n"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_reserved_port_is_shared_and_taken_by_nobody_else(host: str) -> None:
    holder, port = reserve_port(host, 0)
    with holder:
        assert holder.getsockname()[:2] == (host, port)
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            assert holder.getsockopt(socket.SOL_SOCKET, option)
        second, same = reserve_port(host, port)
        second.close()
        assert same == port
        with socket.socket(holder.family) as other, pytest.raises(OSError, match="in use"):
            other.bind((host, port))


class Process:
    """A process that ends when its standard input does, whose pipe is broken already."""

    def __init__(self) -> None:
        self.stdin = self
        self.waits: list[float | None] = []

    def close(self) -> None:
        raise BrokenPipeError

    def wait(self, timeout: float | None = None) -> int:
        self.waits.append(timeout)
        return 0


def test_a_broken_pipe_keeps_no_other_worker_from_its_end() -> None:
    workers = Workers([], out=io.StringIO(), stop_timeout_s=0)
    workers._processes = processes = [Process(), Process()]
    workers._stop()
    # All have a moment to end by themselves, however long the others took.
    assert [process.waits for process in processes] == [[0.1], [0.1]]


def test_consecutive_ports_that_are_never_free_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    holders = []

    def reserve(host: str, port: int) -> Any:
        if port:
            raise ConfigurationError(f"port {port} is taken")
        holders.append(socket.socket())
        return holders[-1], 9000

    monkeypatch.setattr(module, "reserve_port", reserve)
    with pytest.raises(ConfigurationError, match="port 9001 is taken"):
        reserve_ports("127.0.0.1", 0, 2)
    assert len(holders) > 1
    assert all(holder.fileno() < 0 for holder in holders)

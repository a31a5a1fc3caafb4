"""The parts of one gateway process: their settings, their start, and their end in order."""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.config import config_of
from airflow_hive_federation.gateway.dispatch import access_log
from airflow_hive_federation.gateway.serving import Serving, start
from airflow_hive_federation.gateway.workers import reserve_ports
from airflow_hive_federation.metastore import MetastoreSettings
from tests.support.gateways import until

UPSTREAM = {"upstream": {"uris": ["thrift://127.0.0.1:1"]}, "health": {"interval_s": 0}}


def nobody(connection: str) -> MetastoreSettings:
    raise AssertionError(connection)


def started(stack: ExitStack, worker: int | None = None, **sections: Any) -> Serving:
    serving = start(config_of({**UPSTREAM, "thrift": False, **sections}), nobody, worker=worker)
    stack.callback(serving.stop)
    return serving


class Parts:
    """Parts of a process that note their ends."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self._together = threading.Barrier(2)
        self._rest = threading.Event()

    def front(self) -> Any:
        class Front:
            uri = "thrift://127.0.0.1:1"
            stop = self._stop_front

        return Front()

    def part(self, name: str, method: str) -> Any:
        def end() -> None:
            self._rest.set()
            self.ended.append(name)

        return type(name, (), {method: staticmethod(end)})()

    def _stop_front(self, drain_timeout_s: float | None = None) -> None:
        self._together.wait(20)
        # Long enough for a process that would not wait for its fronts to end the rest before them.
        self.ended.append("rest before front" if self._rest.wait(0.3) else "front")


def test_all_fronts_drain_at_once_and_the_rest_ends_after_them() -> None:
    parts = Parts()
    serving = Serving(
        parts.part("handler", "close"),
        parts.part("target", "close"),
        [parts.front(), parts.front()],
        parts.part("metrics", "close"),
    )
    serving.stop()
    assert parts.ended == ["front", "front", "metrics", "target"]


def test_probes_end_before_the_fronts() -> None:
    parts = Parts()
    health = parts.part("health", "stop")
    Serving(parts.part("handler", "close"), parts.part("target", "close"), [], None, health).stop()
    assert parts.ended == ["health", "target"]


@pytest.mark.parametrize("taken", ["thrift", "grpc", "metrics"])
def test_a_failed_start_leaves_nothing_behind(taken: str) -> None:
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as other:
        sections: dict[str, dict[str, int]] = {name: {"port": 0} for name in ("thrift", "grpc", "metrics")}
        sections[taken]["port"] = other.getsockname()[1]
        with pytest.raises(ConfigurationError, match="cannot"):
            start(config_of({**UPSTREAM, **sections}), nobody)
    until(lambda: not set(threading.enumerate()) - before)


@pytest.mark.parametrize(
    ("worker", "setting", "shared"), [(None, False, False), (None, True, True), (0, False, True)]
)
def test_workers_share_the_ports_of_both_fronts(
    stack: ExitStack, worker: int | None, setting: bool, shared: bool
) -> None:
    section = {"port": 0, "reuse_port": setting}
    serving = started(stack, worker, thrift=section, grpc=section)
    thrift, grpc = serving.fronts
    assert thrift.settings.reuse_port is shared
    assert grpc.server.settings.reuse_port is shared


class Bare:
    """A server without the methods that the design leaves out."""

    port = 9

    def __init__(self, *_: Any) -> None:
        self.stopped_with: list[float | None] = []

    def start(self) -> Bare:
        return self

    def stop(self, drain_timeout_s: float | None = None) -> None:
        self.stopped_with.append(drain_timeout_s)


def test_a_server_of_another_class_needs_no_health(stack: ExitStack) -> None:
    properties = {"metastore.custom.server.class": f"{Bare.__module__}.Bare"}
    serving = started(stack, thrift={"port": 0}, properties=properties, grpc={"host": "::1"})
    serving.tell_health("main", up=False)
    assert serving.fronts[1].uri == "grpc://[::1]:9"


def test_each_worker_has_a_port_for_its_metrics(stack: ExitStack) -> None:
    holders, first = reserve_ports("127.0.0.1", 0, 2)
    for holder in holders:
        stack.callback(holder.close)
    serving = started(stack, 1, metrics={"port": first})
    assert serving.metrics is not None
    assert serving.metrics.port == first + 1


@pytest.mark.parametrize("worker", [None, 1])
def test_the_metrics_may_have_any_free_port(stack: ExitStack, worker: int | None) -> None:
    serving = started(stack, worker, metrics={"port": 0})
    assert serving.metrics is not None
    assert serving.metrics.port > 1


def test_an_access_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    where = tmp_path / "no" / "log"
    with pytest.raises(ConfigurationError, match=r"The access log .*/no/log cannot be written"):
        start(config_of({**UPSTREAM, "log": {"access": str(where)}}), nobody)


def test_no_access_log_means_no_lines(stack: ExitStack) -> None:
    access_log.setLevel(logging.INFO)
    started(stack)
    assert not access_log.isEnabledFor(logging.INFO)


def test_the_lines_of_an_access_log_go_nowhere_else(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_log, "propagate", True)
    before = set(access_log.handlers)
    file = tmp_path / "log"
    started(stack, log={"access": str(file)})
    (handler,) = set(access_log.handlers) - before
    stack.callback(handler.close)
    stack.callback(access_log.removeHandler, handler)
    access_log.info("a call")
    assert file.read_text(encoding="utf-8").endswith("a call\n")
    assert not access_log.propagate

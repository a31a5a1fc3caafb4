"""Probes of metastores, as health checks, metrics and ``gateway check`` use them."""

from __future__ import annotations

import queue
import threading
import urllib.request
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.check import examine
from airflow_hive_federation.gateway.config import config_of
from airflow_hive_federation.gateway.handler import Caller
from airflow_hive_federation.gateway.health import Health, HealthSection
from airflow_hive_federation.gateway.serving import start
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreSettings
from tests.support.gateways import Gateways, Peers, Raws, call_bytes
from tests.support.metastore_peers import DEAD_URI, HangUp, Thrift

State = health_pb2.HealthCheckResponse


def alive(method: str, _args: Any) -> Any:
    return {"getStatus": 2, "get_all_databases": ["a"]}.get(method)


def nobody(connection: str) -> MetastoreSettings:
    raise AssertionError(connection)


class Moody:
    """A metastore that answers, or hangs up."""

    well = True

    def __call__(self, method: str, args: Any) -> Any:
        if not self.well:
            raise HangUp
        return alive(method, args)


def test_health_checks_follow_each_metastore(peer: Peers, stack: ExitStack) -> None:
    moody = Moody()
    main, far = peer(Thrift(alive)), peer(Thrift(moody))
    config = config_of(
        {
            "upstream": {"uris": [main.uri]},
            "federated": [{"name": "far", "uris": [far.uri]}],
            "grpc": {"port": 0},
            "thrift": False,
            "metrics": {"port": 0},
            "health": {"interval_s": 0.05},
        }
    )
    serving = start(config, nobody)
    stack.callback(serving.stop)
    (front,) = serving.fronts
    channel = stack.enter_context(grpc.insecure_channel(front.uri.rpartition("/")[2]))
    stub = health_pb2_grpc.HealthStub(channel)
    # Each has been asked once: a thread of its own asks it.
    for name in ("main", "far"):
        watched = stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=60)
        stack.callback(watched.cancel)
        assert State.SERVING in (answer.status for answer in watched)
    moody.well = False
    assert next(watched).status == State.NOT_SERVING
    # Neither the other metastore nor the gateway is at fault.
    for name in ("", "main"):
        assert stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=20).status == State.SERVING
    assert serving.metrics is not None
    where = f"http://127.0.0.1:{serving.metrics.port}/metrics"
    text = urllib.request.urlopen(where, timeout=20).read().decode()
    assert 'upstream_up{worker="0",upstream="far"} 0' in text
    assert 'upstream_up{worker="0",upstream="main"} 1' in text
    moody.well = True
    assert next(watched).status == State.SERVING


def test_connections_that_are_all_in_use_do_not_count_against_the_metastore(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    asked, go = threading.Event(), threading.Event()

    def wait(method: str, args: Any) -> Any:
        asked.set()
        return alive(method, args) if go.wait(30) else None

    run = gateway(peer(Thrift(wait)).uri, max_connections=1)
    raw(run).sock.sendall(call_bytes("get_all_databases"))
    assert asked.wait(20)
    changes: list[tuple[str, bool]] = []
    health = Health(
        [run.upstream], HealthSection(timeout_s=0.05), lambda name, up: changes.append((name, up))
    )
    health._look(run.upstream)
    assert changes == []
    go.set()


def test_a_question_that_hangs_is_given_up_at_the_end(peer: Peers) -> None:
    asked, go = threading.Event(), threading.Event()

    def hang(_method: str, _args: Any) -> Any:
        asked.set()
        go.wait(60)

    upstream = Upstream("main", MetastoreSettings(uris=(peer(Thrift(hang)).uri,)))
    changes: queue.Queue[Any] = queue.Queue()
    health = Health([upstream], HealthSection(timeout_s=60), lambda *change: changes.put(change)).start()
    assert asked.wait(20)
    health.stop()
    assert not any(thread.is_alive() for thread in health._threads)
    assert upstream.open_connections == 0
    assert changes.empty()
    go.set()


def test_no_question_is_asked_where_none_is_wanted() -> None:
    upstream = Upstream("main", MetastoreSettings(uris=("thrift://x:1",)))
    health = Health([upstream], HealthSection(interval_s=0), print).start()
    assert (health._threads, health.states()) == ([], {})
    health.stop()
    with pytest.raises(ConfigurationError, match="timeout_s above 0"):
        HealthSection(timeout_s=0)


def test_the_check_shows_each_metastore(peer: Peers) -> None:
    values = {
        "upstream": {"uris": [peer(Thrift(alive)).uri]},
        "federated": [{"name": "far", "uris": [DEAD_URI]}],
    }
    sights = {sight.name: sight for sight in examine(config_of(values), nobody, Caller())}
    assert sights["metastore main"].state == "ok"
    assert sights["metastore main"].detail.startswith("answers (")
    assert sights["metastore far"].state == "error"
    assert "far does not answer" in sights["metastore far"].detail

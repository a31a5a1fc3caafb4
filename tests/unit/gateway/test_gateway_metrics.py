"""The counts of a gateway, as Prometheus reads them."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from airflow_hive_federation.gateway.metrics import BUCKETS_S, Metrics, MetricsServer

LABELS = 'worker="1",front="thrift"'
TEXT = f"""\
# HELP hive_gateway_calls_total Calls answered.
# TYPE hive_gateway_calls_total counter
hive_gateway_calls_total{{{LABELS},method="get_table",status="ok"}} 2
hive_gateway_calls_total{{{LABELS},method="other",status="a \\"fault\\""}} 1
# HELP hive_gateway_bytes_total Bytes of messages.
# TYPE hive_gateway_bytes_total counter
hive_gateway_bytes_total{{{LABELS},direction="in"}} 21
hive_gateway_bytes_total{{{LABELS},direction="out"}} 600
# HELP hive_gateway_call_seconds Time from a whole call to its whole answer.
# TYPE hive_gateway_call_seconds histogram
"""
GAUGES = """\
# HELP hive_gateway_connections Open connections.
# TYPE hive_gateway_connections gauge
hive_gateway_connections{worker="1",upstream="far"} 1
hive_gateway_connections{worker="1",upstream="main"} 2.5
# HELP hive_gateway_gaps_total Gaps.
# TYPE hive_gateway_gaps_total counter
hive_gateway_gaps_total{worker="1",upstream="main"} 3
"""


@pytest.fixture
def metrics() -> Metrics:
    metrics = Metrics(worker="1")
    metrics.call("thrift", "get_table", "ok", seconds=0.001, taken=10, given=100)
    metrics.call("thrift", "get_table", "ok", seconds=1000000.25, taken=10, given=200)
    metrics.call("thrift", "other", 'a "fault"', seconds=0.003, taken=1, given=300)
    metrics.gauge("connections", "Open connections.", "upstream", lambda: {"main": 2.5, "far": 1.0})
    metrics.gauge("gaps_total", "Gaps.", "upstream", lambda: {"main": 3}, total=True)
    return metrics


@pytest.fixture
def where(metrics: Metrics) -> Iterator[str]:
    server = MetricsServer(metrics, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.port}"
    server.close()


def test_every_count_is_in_the_text(metrics: Metrics) -> None:
    bounds = [*map(str, BUCKETS_S), "+Inf"]
    # A bound belongs to its bucket.
    counts = [1, 1, *[2] * 11, 3]
    buckets = "".join(
        f'hive_gateway_call_seconds_bucket{{{LABELS},le="{bound}"}} {count}\n'
        for bound, count in zip(bounds, counts, strict=True)
    )
    totals = (
        f"hive_gateway_call_seconds_sum{{{LABELS}}} {0.001 + 1000000.25 + 0.003!r}\n"
        f"hive_gateway_call_seconds_count{{{LABELS}}} 3\n"
    )
    assert metrics.text() == TEXT + buckets + totals + GAUGES


def test_the_text_is_served(where: str, metrics: Metrics) -> None:
    with urllib.request.urlopen(f"{where}/metrics", timeout=20) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = answer.read().decode()
        assert int(answer.headers["Content-Length"]) == len(text)
    assert text == metrics.text()
    with urllib.request.urlopen(f"{where}/healthz", timeout=20) as answer:
        assert answer.read() == b"ok\n"


def test_other_paths_are_not_found(where: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{where}/", timeout=20)
    with caught.value as answer:
        assert (answer.code, answer.read()) == (404, b"not found\n")


def test_a_taken_port_is_an_error_and_leaves_no_socket(metrics: Metrics) -> None:
    """An open socket would be a ``ResourceWarning``, which is an error."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        MetricsServer(metrics, "127.0.0.1", taken.getsockname()[1])


def test_a_closed_server_has_no_thread(metrics: Metrics) -> None:
    before = set(threading.enumerate())
    server = MetricsServer(metrics, "127.0.0.1", 0)
    (thread,) = set(threading.enumerate()) - before
    server.close()
    thread.join(60)
    assert not thread.is_alive()

"""The trace context of a caller on its way through gateways, to gRPC and HTTP, and in the access log."""

from __future__ import annotations

import json
import logging
import socket
from typing import Any

import pytest

from airflow_hive_federation.errors import MetastoreError
from airflow_hive_federation.gateway.dispatch import access_log
from airflow_hive_federation.metastore.trace_context import passing_on, trace_of
from tests.support.gateways import Clients, Peers
from tests.support.grpc_fronts import Fronts, fronted
from tests.support.metastore_peers import Thrift

__all__ = ["fronted"]

TRACE = "0af7651916cd43dd8448eb211c80319c"
CONTEXT = trace_of({"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "tracestate": "vendor=x"})


def databases(method: str, _args: Any) -> Any:
    return {"get_all_databases": ["a"], "get_metastore_db_uuid": "u"}.get(method)


# The second method's answer is short: it goes by the conversation, and the first one's by a call of its own.
@pytest.mark.parametrize("method", ["get_all_databases", "get_metastore_db_uuid"])
def test_two_gateways_log_the_trace_of_a_call(
    peer: Peers,
    fronted: Fronts,
    client: Clients,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    # Other tests have started gateways, which leave the log with a level and files of their own.
    monkeypatch.setattr(access_log, "handlers", [caplog.handler])
    monkeypatch.setattr(access_log, "propagate", False)
    second = fronted(peer(Thrift(databases)).uri)
    first = fronted(second.uri)
    asking = client(first.uri)
    with caplog.at_level(logging.INFO, access_log.name):
        with passing_on(CONTEXT):
            asking.call(method)
        asking.call(method)
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == access_log.name]
    traces = [line.get("trace") for line in lines if line["method"] == method]
    assert traces == [TRACE, TRACE, None, None]


def test_a_metastore_behind_http_gets_the_context(peer: Peers, fronted: Fronts, client: Clients) -> None:
    heads = []

    def refuse(connection: socket.socket) -> None:
        heads.append(connection.recv(1 << 16).decode(errors="replace"))
        connection.sendall(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")

    front = fronted(peer(refuse).uri.replace("thrift:", "http:"))
    with passing_on(CONTEXT), pytest.raises(MetastoreError):
        client(front.uri).call("get_all_databases")
    assert f"traceparent: {CONTEXT[0][1]}\r\ntracestate: vendor=x\r\n" in heads[0]

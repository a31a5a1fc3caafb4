"""Expressions of older clients, where the metastore behind the gateway speaks HTTP."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from thriftpy2.protocol.cybin.cybin import TCyBinaryProtocol
from thriftpy2.transport.buffered.cybuffered import TCyBufferedTransport

from airflow_hive_federation.metastore.idl import types
from tests.support.gateways import Gateways, Raws
from tests.support.metastore_peers import Thrift

PARTITIONS = [types.Partition(values=["a"]), types.Partition(values=["b"])]


class Body:
    """A request's body and its answer's, as thriftpy2 reads and writes them."""

    def __init__(self, request: bytes) -> None:
        self._request, self.answer = io.BytesIO(request), b""

    def read(self, size: int) -> bytes:
        return self._request.read(size)

    def write(self, data: bytes) -> None:
        self.answer += data

    def flush(self) -> None:
        """Nothing waits."""


class Jetty(BaseHTTPRequestHandler):
    """Answers as Hive's servlet does: an error that is no exception of the interface is the status 500."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = Body(self.rfile.read(int(self.headers["Content-Length"])))
        status = 200
        try:
            Thrift(self._call).answer(TCyBinaryProtocol(TCyBufferedTransport(body)))
        except ArithmeticError:
            status, body.answer = 500, b"<html>Server Error</html>"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body.answer)))
        self.end_headers()
        self.wfile.write(body.answer)

    def _call(self, method: str, args: Any) -> Any:
        if method == "get_partitions_by_expr":
            if args.req.expr == b"breaks":
                raise ArithmeticError
            raise types.MetaException(message="Buffer underflow")
        if self.path != "/whole":
            raise ArithmeticError
        return types.PartitionsResponse(partitions=PARTITIONS)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def jetty() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Jetty) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(20)


@pytest.mark.parametrize("expression", [b"breaks", b"is a fault"])
def test_all_partitions_are_the_answer(jetty: str, gateway: Gateways, raw: Raws, expression: bytes) -> None:
    request = types.PartitionsByExprRequest(dbName="d", tblName="t", expr=expression, maxParts=-1)
    answer = raw(gateway(f"{jetty}/whole")).ask("get_partitions_by_expr", req=request)
    every = types.PartitionsByExprResult(partitions=PARTITIONS, hasUnknownPartitions=True)
    assert answer == {"success": every}


def test_a_server_that_fails_at_everything_says_so(jetty: str, gateway: Gateways, raw: Raws) -> None:
    request = types.PartitionsByExprRequest(dbName="d", tblName="t", expr=b"breaks", maxParts=-1)
    answer = raw(gateway(f"{jetty}/broken")).ask("get_partitions_by_expr", req=request)
    assert "gave no answer of a Hive metastore: HTTP 500" in answer["o1"].message

"""A real Hive metastore that speaks Thrift over HTTP."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from airflow_hive_federation.errors import (
    MetastoreError,
    MetastoreProtocolError,
    MetastoreUnreachableError,
    NoSuchObjectError,
)
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings, examine
from airflow_hive_federation.metastore.idl import types
from tests.support.gateway_front import gateway, work_through
from tests.support.http_metastore import metastore_over_http
from tests.support.tls_metastore import make_identity
from tests.support.wire_structs import partition, table

TOKEN = "only-for-this-test"


@pytest.fixture(scope="module")
def over_http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a Hive 4.2 metastore in HTTP mode."""
    with metastore_over_http(tmp_path_factory.mktemp("over-http")) as uri:
        yield uri


def test_calls_large_answers_and_errors(over_http: str) -> None:
    with MetastoreClient(MetastoreSettings(uris=(over_http,), user="ada")) as client:
        client.create_database(types.Database(name="metastore_client", parameters={}))
        keys = [types.FieldSchema(name="d", type="string")]
        client.create_table(table("wide", external=True, keys=keys))
        made = client.get_table("metastore_client", "wide")
        values = [f"{number:04}" for number in range(1_000)]
        client.add_partitions([partition(made, value) for value in values])
        partitions = list(client.iter_partitions("metastore_client", "wide"))
        assert sorted((partition.values or [""])[0] for partition in partitions) == values
        with pytest.raises(NoSuchObjectError, match="nothing") as caught:
            client.get_table("metastore_client", "nothing")
        assert caught.value.uri == over_http
        findings = {finding.name: finding.state for finding in examine(client)}
        assert findings["capabilities"] == "ok"


def test_a_pool(over_http: str) -> None:
    with MetastorePool(MetastoreSettings(uris=(over_http,)), 2) as pool:
        with pool.client() as first, pool.client() as other:
            assert first.list_databases() == other.list_databases()
        with pool.client() as again:
            assert "default" in again.list_databases()


def test_another_path_is_no_metastore(over_http: str) -> None:
    settings = MetastoreSettings(uris=(over_http.replace("/metastore", "/elsewhere"),), call_timeout_s=10)
    with MetastoreClient(settings) as client, pytest.raises(MetastoreProtocolError, match=r"HTTP 40\d"):
        client.list_databases()


def test_plain_thrift_to_a_server_of_http(over_http: str) -> None:
    uri = over_http.replace("http://", "thrift://").removesuffix("/metastore")
    settings = MetastoreSettings(uris=(uri,), connect_timeout_s=5, call_timeout_s=5)
    with MetastoreClient(settings) as client, pytest.raises(MetastoreError) as caught:
        client.list_databases()
    assert isinstance(caught.value, MetastoreProtocolError | MetastoreUnreachableError)
    assert uri in str(caught.value)


def test_a_gateway_before_it(over_http: str, tmp_path: Path) -> None:
    """An engine that knows plain Thrift only gets through HTTPS to it, by a token that the gateway has."""
    token, wrong = tmp_path / "token", tmp_path / "wrong"
    token.write_text(f"{TOKEN}\n")
    wrong.write_text("another")
    work_through({"uris": [over_http]}, "gateway_http")
    with guarded(over_http, tmp_path) as (uri, ca_file):
        upstream = {"uris": [uri], "ca_file": str(ca_file), "bearer_token_file": str(token)}
        work_through(upstream, "gateway_https")
        with (
            gateway({"upstream": {**upstream, "bearer_token_file": str(wrong)}}) as stranger,
            MetastoreClient(MetastoreSettings(uris=(stranger.fronts[0].uri,))) as client,
            pytest.raises(MetastoreError, match="401") as refused,
        ):
            client.list_databases()
        assert "another" not in str(refused.value)


@contextmanager
def guarded(uri: str, directory: Path) -> Iterator[tuple[str, Path]]:
    """A reverse proxy that ends TLS before a metastore and lets in who has the token, as they stand there."""
    identity = make_identity(directory / "proxy")
    target = urlsplit(uri)

    class Guard(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, data, kind = 401, b"", "text/plain"
            if self.headers["Authorization"] == f"Bearer {TOKEN}":
                assert target.hostname is not None
                behind = HTTPConnection(target.hostname, target.port or 80, timeout=60)
                names = [name for name in self.headers if name.lower() not in {"host", "authorization"}]
                behind.request("POST", target.path, body, {name: self.headers[name] for name in names})
                answer = behind.getresponse()
                status, data = answer.status, answer.read()
                kind = answer.headers.get("Content-Type", kind)
                behind.close()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Guard) as server:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(identity.certificate, identity.key_file)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"https://127.0.0.1:{server.server_address[1]}{target.path}", identity.certificate
        finally:
            server.shutdown()

"""The client against servers that answer, break off, dribble, keep silent or are something else."""

from __future__ import annotations

import http.server
import pickle
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from thriftpy2.protocol.cybin.cybin import TCyBinaryProtocol
from thriftpy2.transport.memory.cymemory import TCyMemoryBuffer

from airflow_hive_federation.errors import (
    ConfigurationError,
    MetastoreError,
    MetastoreProtocolError,
    MetastoreServerError,
    MetastoreTimeoutError,
    MetastoreUnreachableError,
    NoSuchObjectError,
    OutcomeUnknownError,
    UnsupportedMethodError,
)
from airflow_hive_federation.metastore import (
    MetastoreClient,
    MetastorePool,
    MetastoreSettings,
    TlsSettings,
    hms_client,
)
from airflow_hive_federation.metastore.idl import types
from tests.support.metastore_peers import HangUp, Peer, Thrift

Peers = Callable[..., Peer]


def settings(*uris: str, **more: Any) -> MetastoreSettings:
    return MetastoreSettings(
        uris=uris, user="tester", **{"connect_timeout_s": 5, "call_timeout_s": 5, **more}
    )


def names(method: str, args: Any) -> Any:
    return ["a", "b"] if method == "get_databases" else None


def hang_up(method: str, args: Any) -> Any:
    raise HangUp


@pytest.fixture
def client_of() -> Iterator[Callable[..., MetastoreClient]]:
    clients = []

    def make(*uris: str, **more: Any) -> MetastoreClient:
        clients.append(MetastoreClient(settings(*uris, **more)))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


Clients = Callable[..., MetastoreClient]


class TestAnswers:
    def test_a_call_and_the_user_it_is_made_for(self, peers: Peers, client_of: Clients) -> None:
        server = Thrift(names)
        assert client_of(peers(server).uri).list_databases() == ["a", "b"]
        assert server.users == ["tester"]

    def test_raw_methods_are_attributes(self, peers: Peers, client_of: Clients) -> None:
        client = client_of(peers(Thrift(names)).uri)
        assert client.get_databases("*") == ["a", "b"]
        with pytest.raises(AttributeError, match="no attribute 'get_datebases'"):
            client.get_datebases("*")
        with pytest.raises(ConfigurationError, match="no method 'get_datebases'"):
            client.call("get_datebases", "*")
        with pytest.raises(TypeError, match=r"takes 1 arguments \(pattern\)"):
            client.call("get_databases", "*", 1)

    def test_what_the_server_raises_is_translated_and_the_connection_goes_on(
        self, peers: Peers, client_of: Clients
    ) -> None:
        def refuse(method: str, args: Any) -> Any:
            raise types.NoSuchObjectException(message=f"no {args.request.name}")

        server = peers(Thrift(refuse))
        client = client_of(server.uri)
        for _ in range(2):
            with pytest.raises(NoSuchObjectError, match=r"get_database_req at thrift://.*: no x") as caught:
                client.get_database("x")
        assert caught.value.server_message == "no x"
        assert pickle.loads(pickle.dumps(caught.value)).server_exception == "NoSuchObjectException"
        assert len(server.connections) == 1

    def test_an_abort_of_no_transaction_sends_nothing(self, peers: Peers, client_of: Clients) -> None:
        sent: list[list[int]] = []

        def abort(method: str, args: Any) -> Any:
            sent.append(args.rqst.txn_ids)

        client = client_of(peers(Thrift(abort)).uri)
        client.abort_txns([])
        client.abort_txns([7])
        assert sent == [[7]]

    def test_a_method_the_server_lacks(self, peers: Peers, client_of: Clients) -> None:
        client = client_of(peers(Thrift(names, lacking={"get_catalogs"})).uri)
        with pytest.raises(UnsupportedMethodError, match="Invalid method name: 'get_catalogs'"):
            client.get_catalogs()
        assert client.list_databases() == ["a", "b"]

    def test_an_old_server_gets_calls_of_its_own_version(self, peers: Peers, client_of: Clients) -> None:
        def old(method: str, args: Any) -> Any:
            return types.Table(dbName=args.dbname, tableName=args.tbl_name)

        server = Thrift(old, lacking={"get_table_req"})
        client = client_of(peers(server).uri)
        assert [client.get_table("d", name).tableName for name in ("t", "u")] == ["t", "u"]
        assert server.calls == ["get_table", "get_table"]

    def test_skewed_values_come_as_tuples_in_a_large_answer(self, peers: Peers, client_of: Clients) -> None:
        def tables(method: str, args: Any) -> Any:
            if method == "get_databases":
                return ["still in step"]
            skewed = types.SkewedInfo(skewedColValueLocationMaps={("1", "a"): "x", ("2", "b"): "y"})
            return types.GetTablesResult(
                tables=[
                    types.Table(
                        tableName=name, owner="o" * 5000, sd=types.StorageDescriptor(skewedInfo=skewed)
                    )
                    for name in args.req.tblNames
                ]
            )

        client = client_of(peers(Thrift(tables)).uri)
        read = client.get_tables("d", [f"t{i}" for i in range(150)])
        assert [table.tableName for table in read] == [f"t{i}" for i in range(150)]
        assert read[99].sd.skewedInfo.skewedColValueLocationMaps == {("1", "a"): "x", ("2", "b"): "y"}
        assert client.list_databases() == ["still in step"]

    def test_a_value_of_the_wrong_type_never_leaves(self, peers: Peers, client_of: Clients) -> None:
        server = Thrift(names)
        client = client_of(peers(server).uri)
        with pytest.raises(TypeError, match="wrong type"):
            client.create_table(types.Table(tableName="t", createTime="now"))  # type: ignore[arg-type]
        assert client.list_databases() == ["a", "b"]
        assert server.calls == ["get_databases"]


class TestFailover:
    def test_the_next_server_is_tried(self, peers: Peers, client_of: Clients, dead_uri: str) -> None:
        uri = peers(Thrift(names)).uri
        for _ in range(8):  # the order is random
            assert client_of(dead_uri, uri).list_databases() == ["a", "b"]

    def test_nobody_answers(self, client_of: Clients, dead_uri: str) -> None:
        other = dead_uri.replace("127.0.0.1", "127.0.0.2")
        with pytest.raises(MetastoreUnreachableError) as caught:
            client_of(dead_uri, other).list_databases()
        assert dead_uri in str(caught.value)
        assert other in str(caught.value)
        assert "refused" in str(caught.value)

    def test_an_unknown_host(self, client_of: Clients) -> None:
        with pytest.raises(MetastoreUnreachableError, match=r"nowhere\.invalid"):
            client_of("thrift://nowhere.invalid:9083").list_databases()

    def test_a_read_that_broke_is_made_again_elsewhere(self, peers: Peers, client_of: Clients) -> None:
        breaking, sound = Thrift(hang_up), Thrift(names)
        uris = [peers(breaking).uri, peers(sound).uri]
        client = client_of(*uris)
        client._endpoints.sort(key=lambda endpoint: uris.index(str(endpoint)))
        assert client.list_databases() == ["a", "b"]
        assert (breaking.calls, sound.calls) == (["get_databases"], ["get_databases"])

    def test_a_read_that_always_breaks(self, peers: Peers, client_of: Clients) -> None:
        server = Thrift(hang_up)
        with pytest.raises(MetastoreUnreachableError, match="closed the connection"):
            client_of(peers(server).uri).list_databases()
        assert server.calls == ["get_databases"] * 2

    def test_a_write_that_broke_is_not_repeated(self, peers: Peers, client_of: Clients) -> None:
        servers = [Thrift(hang_up), Thrift(hang_up)]
        client = client_of(*(peers(server).uri for server in servers))
        with pytest.raises(OutcomeUnknownError, match=r"commit_txn at thrift://.* may have been carried out"):
            client.commit_txn(7)
        assert servers[0].calls + servers[1].calls == ["commit_txn"]

    def test_a_connection_closed_while_idle_is_replaced_even_for_a_write(
        self, peers: Peers, client_of: Clients
    ) -> None:
        server = Thrift(names)
        peer = peers(server)
        client = client_of(peer.uri)
        client.list_databases()
        peer.hang_up()
        client.commit_txn(7)
        assert server.calls == ["get_databases", "commit_txn"]


class TestDeadlines:
    def test_a_silent_server_does_not_connect(self, peers: Peers, client_of: Clients) -> None:
        client = client_of(peers(forget).uri, connect_timeout_s=0.3)
        with pytest.raises(MetastoreUnreachableError, match=r"no complete answer within 0\.3 s"):
            client.list_databases()

    @pytest.mark.parametrize(
        ("call", "error"),
        [
            ("get_all_databases", MetastoreTimeoutError),
            ("flushCache", MetastoreTimeoutError),
            ("create_database", OutcomeUnknownError),
        ],
    )
    def test_a_call_that_is_not_answered(
        self, peers: Peers, client_of: Clients, call: str, error: type[MetastoreError]
    ) -> None:
        stop = threading.Event()

        def think(method: str, args: Any) -> Any:
            stop.wait(30)
            raise HangUp

        server = Thrift(think)
        client = client_of(peers(server).uri, call_timeout_s=0.3)
        with pytest.raises(error, match=r"within 0\.3 s"):
            client.call(call)
        assert len(server.calls) == 1
        stop.set()

    def test_a_server_that_dribbles(self, peers: Peers, client_of: Clients) -> None:
        def dribble(connection: socket.socket) -> None:
            connection.recv(1000)
            message = b"\x80\x01\x00\x02\x00\x00\x00\x07set_ugi\x00\x00\x00\x01"
            for byte in message + b"\x0f\x00\x00\x0b\x7f\xff\xff\xff" * 1000:
                connection.sendall(bytes([byte]))
                time.sleep(0.02)

        client = client_of(peers(dribble).uri, connect_timeout_s=0.5)
        with pytest.raises(MetastoreUnreachableError, match=r"within 0\.5 s"):
            client.list_databases()

    def test_a_tls_handshake_that_dribbles(self, peers: Peers, client_of: Clients) -> None:
        def dribble(connection: socket.socket) -> None:
            for byte in b"\x16\x03\x03\x3f\xff" + bytes(1000):
                connection.sendall(bytes([byte]))
                time.sleep(0.02)

        client = client_of(peers(dribble, scheme="thrift+tls").uri, connect_timeout_s=0.5)
        with pytest.raises(MetastoreUnreachableError, match=r"within 0\.5 s"):
            client.list_databases()


def forget(connection: socket.socket) -> None:
    while connection.recv(1000):
        pass


def http_server(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def ssh_server(connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    connection.recv(1000)


def tls_server(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"\x15\x03\x03\x00\x02\x02\x46")


def noise(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(bytes(range(255, 100, -1)))


class TestSomethingElse:
    @pytest.mark.parametrize("behave", [http_server, ssh_server, tls_server, noise])
    @pytest.mark.parametrize("scheme", ["thrift", "http"])
    def test_is_named(
        self, peers: Peers, client_of: Clients, behave: Callable[[socket.socket], None], scheme: str
    ) -> None:
        client = client_of(peers(behave, scheme=scheme).uri)
        with pytest.raises(MetastoreProtocolError, match="is not a Hive metastore"):
            client.list_databases()

    def test_tls_to_a_server_without(self, peers: Peers, client_of: Clients) -> None:
        client = client_of(peers(ssh_server, scheme="thrift+tls").uri)
        with pytest.raises(MetastoreProtocolError, match="it uses a different transport"):
            client.list_databases()

    def test_an_answer_to_another_call(self, peers: Peers, client_of: Clients) -> None:
        def confuse(connection: socket.socket) -> None:
            connection.recv(1000)
            connection.sendall(b"\x80\x01\x00\x02\x00\x00\x00\x05other\x00\x00\x00\x01\x00")

        with pytest.raises(MetastoreProtocolError, match="an answer to 'other'"):
            client_of(peers(confuse).uri).list_databases()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of 127.0.0.1, its key in the same file."""
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path), "-out", str(path) + ".crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


class TestTls:
    @pytest.fixture
    def server(self, peers: Peers, certificate: Path) -> Peer:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        return peers(Thrift(names), tls=context)

    def test_trusted(self, server: Peer, client_of: Clients, certificate: Path) -> None:
        trust = TlsSettings(ca_file=str(certificate))
        assert client_of(server.uri, tls=trust).list_databases() == ["a", "b"]
        assert client_of(server.uri.replace("thrift", "thrift+tls"), tls=trust).list_databases() == ["a", "b"]

    def test_not_trusted(self, server: Peer, client_of: Clients) -> None:
        with pytest.raises(MetastoreProtocolError, match="certificate verify failed"):
            client_of(server.uri, tls=TlsSettings()).list_databases()

    def test_not_verified(self, server: Peer, client_of: Clients) -> None:
        assert client_of(server.uri, tls=TlsSettings(verify=False)).list_databases() == ["a", "b"]

    def test_a_missing_file_is_named(self, server: Peer, client_of: Clients) -> None:
        with pytest.raises(ConfigurationError, match=r"/nowhere/ca\.pem"):
            client_of(server.uri, tls=TlsSettings(ca_file="/nowhere/ca.pem")).list_databases()


class TestHttp:
    @pytest.fixture
    def server(self) -> Iterator[http.server.ThreadingHTTPServer]:
        class Servlet(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                request = TCyMemoryBuffer(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path != "/metastore" or self.headers.get("Authorization") != "Bearer secret":
                    self.send_error(401)
                    return
                answer = TCyMemoryBuffer()
                Thrift(lambda method, args: [self.headers["x-actor-username"]]).answer(Both(request, answer))
                body = bytes(answer.getvalue())
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Servlet) as server:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            yield server
            server.shutdown()

    def test_calls_share_a_connection(
        self, server: http.server.ThreadingHTTPServer, client_of: Clients
    ) -> None:
        headers = {"Authorization": "Bearer secret"}
        client = client_of(f"http://127.0.0.1:{server.server_port}", http_headers=headers)
        assert [client.list_databases() for _ in range(3)] == [["tester"]] * 3

    def test_not_allowed(self, server: http.server.ThreadingHTTPServer, client_of: Clients) -> None:
        with pytest.raises(MetastoreProtocolError, match="HTTP 401"):
            client_of(f"http://127.0.0.1:{server.server_port}").list_databases()


class Both:
    """Reads one buffer, writes another."""

    def __init__(self, request: Any, answer: Any) -> None:
        self._in, self._out = TCyBinaryProtocol(request), TCyBinaryProtocol(answer)
        self.trans = answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._in if name.startswith("read") else self._out, name)


class TestPool:
    def test_threads_share_connections_and_never_one_at_a_time(self, peers: Peers) -> None:
        def slow(method: str, args: Any) -> Any:
            time.sleep(0.01)
            return [args.pattern]

        peer = peers(Thrift(slow))
        wrong: list[str] = []

        def work(pool: MetastorePool, mark: str) -> None:
            for i in range(10):
                with pool.client() as client:
                    if client.list_databases(f"{mark}{i}") != [f"{mark}{i}"]:
                        wrong.append(mark)

        with MetastorePool(settings(peer.uri), 3) as pool:
            threads = [threading.Thread(target=work, args=(pool, mark)) for mark in "abcdefgh"]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert wrong == []
        assert len(peer.connections) <= 3

    def test_a_broken_client_is_good_again(self, peers: Peers) -> None:
        peer = peers(Thrift(names))
        with MetastorePool(settings(peer.uri), 1) as pool:
            with pool.client() as client:
                client.list_databases()
            peer.hang_up()
            with pool.client() as client:
                assert client.list_databases() == ["a", "b"]

    def test_none_left(self, peers: Peers) -> None:
        pool = MetastorePool(settings(peers(Thrift(names)).uri), 1, wait_timeout_s=0.05)
        with pool.client(), pytest.raises(MetastoreTimeoutError, match="All 1 connections"), pool.client():
            pass


class TestHmsClient:
    def test_speaks_over_our_transport(self, peers: Peers) -> None:
        server = Thrift(names)
        with hms_client(settings(peers(server).uri)) as client:
            assert client.get_databases("*") == ["a", "b"]
        assert server.users == ["tester"]

    def test_reads_tables_by_the_call_that_hive_4_has(self, peers: Peers) -> None:
        def table(method: str, args: Any) -> Any:
            return types.GetTableResult(table=types.Table(tableName=args.req.tblName))

        with hms_client(settings(peers(Thrift(table, lacking={"get_table"})).uri)) as client:
            assert client.get_table("d", "t").tableName == "t"

    def test_a_broken_connection(self, peers: Peers) -> None:
        with hms_client(settings(peers(Thrift(hang_up)).uri)) as client, pytest.raises(OutcomeUnknownError):
            client.get_all_databases()

    def test_nobody_answers(self, dead_uri: str) -> None:
        with pytest.raises(MetastoreUnreachableError):
            hms_client(settings(dead_uri))


def test_an_error_that_has_no_type_of_ours_is_a_server_error(peers: Peers, client_of: Clients) -> None:
    def fail(method: str, args: Any) -> Any:
        raise types.MetaException(message="Derby is full")

    with pytest.raises(MetastoreServerError, match="Derby is full"):
        client_of(peers(Thrift(fail)).uri).list_databases()

"""Bad input by real sockets: a status that fits, nothing left behind, and the next call works."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from airflow_hive_federation.errors import MetastoreError
from airflow_hive_federation.gateway.certificates import ServerTls
from airflow_hive_federation.gateway.messages import REPLY, head_bytes
from airflow_hive_federation.metastore import TlsSettings
from airflow_hive_federation.metastore.grpc_wire import CALL_IN_PIECES, SERVICE, STATUS_KEY, wrap
from airflow_hive_federation.metastore.idl import types
from tests.support.authorities import Authority
from tests.support.gateways import Clients, Gateways, Peers, RawClient, Raws, Running, call_bytes, until
from tests.support.grpc_fronts import Fronts, ask, fronted, refused
from tests.support.metastore_peers import Thrift
from tests.support.signed_tokens import ACCOUNT, BAD, TOKENS, accounts, sign

__all__ = ["accounts", "fronted"]

Code = grpc.StatusCode
NO_GROUPS = b"\x0f\0\0\x0b\0\0\0\0\0"


def names(method: str, _args: Any) -> Any:
    return ["a"] if method == "get_all_databases" else None


class Dying:
    """A metastore that dies behind a long beginning of its answer, once."""

    def __init__(self) -> None:
        self.died = False

    def __call__(self, sock: socket.socket) -> None:
        stream = RawClient(("", 0), sock)
        while True:
            head, _ = stream.message()
            begun = head_bytes(head.method, REPLY, head.sequence_id)
            if head.method == "set_ugi":
                sock.sendall(begun + NO_GROUPS)
            elif self.died:
                sock.sendall(begun + b"\x0f\0\0\x0b\0\0\0\1\0\0\0\1a\0")
            else:
                self.died = True
                piece = b"\0\0\3\xe8" + b"x" * 1000
                sock.sendall(begun + b"\x0f\0\0\x0b" + (5000).to_bytes(4, "big") + piece * 300)
                return


def settled(run: Running) -> None:
    """Wait until the front has no connection but those of the test."""
    with run.front._lock:
        assert run.front._lock.wait_for(lambda: not run.front.connections, timeout=20)


def test_half_an_answer_is_never_a_whole_one(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    run = gateway(peer(Dying()).uri)
    connection = raw(run)
    connection.sock.sendall(call_bytes("get_all_databases"))
    with pytest.raises((EOFError, ConnectionError)):
        connection.message()
    settled(run)
    assert run.upstream.open_connections == 0
    assert raw(run).ask("get_all_databases") == {"success": ["a"]}


def test_half_an_answer_by_grpc_has_a_status(peer: Peers, fronted: Fronts) -> None:
    run = fronted(peer(Dying()).uri)
    with run.channel() as channel:
        stub = channel.unary_stream(f"/{SERVICE}/{CALL_IN_PIECES}")
        error = refused(lambda: list(stub(wrap(call_bytes("get_all_databases")), timeout=20)))
        assert (error.code(), dict(error.trailing_metadata())[STATUS_KEY]) == (
            Code.UNAVAILABLE,
            "unavailable",
        )
        assert "Traceback" not in error.details()
        assert run.upstream.open_connections == 0
        assert ask(channel, "get_all_databases") == {"success": ["a"]}


@pytest.mark.parametrize("name", BAD)
def test_tokens_that_are_refused_by_the_front(
    name: str, accounts: Path, peer: Peers, fronted: Fronts
) -> None:
    served = Thrift(names)
    run = fronted(
        peer(served).uri,
        authentication_class=TOKENS,
        authentication={"service.accounts": str(accounts)},
        upstream={"impersonate": True},
    )
    make, message = BAD[name]
    token = make()
    with run.channel() as channel:
        error = refused(lambda: call(channel, token))
        assert (error.code(), dict(error.trailing_metadata())[STATUS_KEY]) == (
            Code.UNAUTHENTICATED,
            "unauthenticated",
        )
        assert message in error.details()
        assert not token or token not in error.details()
        # Nothing reached the metastore, and the same connection serves who is known.
        assert served.calls == []
        assert call(channel, sign())
        assert served.users == [ACCOUNT]


def call(channel: grpc.Channel, token: str) -> bytes:
    stub = channel.unary_unary(f"/{SERVICE}/Call")
    metadata = (("authorization", f"Bearer {token}"),)
    return bytes(stub(wrap(call_bytes("get_all_databases")), timeout=20, metadata=metadata))


def test_a_gateway_with_a_certificate_for_another_host_is_refused(
    peer: Peers, gateway: Gateways, client: Clients, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.sign("elsewhere", "elsewhere.example.com")
    run = gateway(peer(Thrift(names)).uri, front={"tls": ServerTls(cert_file=cert, key_file=key)})
    with pytest.raises(MetastoreError, match=r"127\.0\.0\.1"):
        client(run.front.uri, tls=TlsSettings(ca_file=authority.ca_file)).call("get_all_databases")
    settled(run)


def test_a_metastore_with_a_certificate_for_another_host_is_not_asked(
    peer: Peers, gateway: Gateways, raw: Raws, tmp_path: Path
) -> None:
    authority, served = Authority(tmp_path), Thrift(names)
    cert, key = authority.sign("elsewhere", "elsewhere.example.com")
    context = ServerTls(cert_file=cert, key_file=key).context()
    far = peer(served, tls=context)
    uri = far.uri.replace("thrift://", "thrift+tls://")
    run = gateway(uri, settings={"tls": TlsSettings(ca_file=authority.ca_file)})
    connection = raw(run)
    answer = connection.ask("get_all_databases")
    assert "Upstream main does not answer" in answer["o1"].message
    assert "certificate" in answer["o1"].message
    assert (served.calls, run.upstream.open_connections) == ([], 0)
    # The metastore gets the right one: the same client, the same connection.
    context.load_cert_chain(*authority.sign("right", "127.0.0.1"))
    assert connection.ask("get_all_databases") == {"success": ["a"]}


MALFORMED: dict[str, Callable[[], bytes]] = {
    "unknown_version": lambda: b"\x80\x02\0\1" + call_bytes("get_all_databases")[4:],
    "endless_name": lambda: b"\x80\x01\0\1\x7f\xff\xff\xff",
    "negative_text": lambda: call_bytes("get_database", name="d")[:-6] + b"\xff\xff\xff\xff",
    "unknown_type": lambda: call_bytes("get_all_databases")[:-1] + b"\x63\0\1\0",
    "deep": lambda: call_bytes("get_all_databases")[:-1] + b"\x0c\0\1" * 500,
    "huge_list": lambda: call_bytes("get_all_databases")[:-1] + b"\x0f\0\1\x0c\x7f\xff\xff\xff",
    "an_answer": lambda: b"\x80\x01\0\2" + call_bytes("get_all_databases")[4:],
    "short_frame": lambda: b"\0\0\0\5" + call_bytes("get_all_databases"),
    "long_frame": lambda: b"\x7f\xff\xff\xff" + call_bytes("get_all_databases"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_thrift_is_refused_and_the_next_call_works(
    name: str, peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    served = Thrift(names)
    run = gateway(peer(served).uri)
    before = threading.active_count()
    with socket.create_connection(run.front.address, timeout=20) as sock:
        sock.sendall(MALFORMED[name]())
        answer = received(sock)
    assert b"Traceback" not in answer
    if name not in {"an_answer", "short_frame"}:
        assert b"This is no message of Hive's metastore" in answer
    settled(run)
    assert served.calls == []
    assert raw(run).ask("get_all_databases") == {"success": ["a"]}
    # The one of the newcomer, and its metastore's; that of the first client may be about to end.
    until(lambda: threading.active_count() <= before + 2)


def received(sock: socket.socket) -> bytes:
    received = b""
    try:
        while data := sock.recv(65536):
            received += data
    except ConnectionError:
        pass
    return received


@pytest.mark.parametrize("method", ["get_no_such_thing", "get_index_by_name", "x" * 200])
def test_unknown_methods_are_refused_on_a_connection_that_goes_on(
    method: str, peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    served = Thrift(names)
    connection = raw(gateway(peer(served).uri))
    connection.sock.sendall(head_bytes(method, 1, 5) + b"\0")
    head, data = connection.message()
    assert (head.method, head.kind, head.sequence_id) == (method, 3, 5)
    assert b"Traceback" not in data
    assert served.calls == []
    assert connection.ask("get_all_databases") == {"success": ["a"]}


def test_a_tls_handshake_that_drips_in_holds_nobody_up(
    peer: Peers, gateway: Gateways, client: Clients, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.sign("server", "127.0.0.1")
    front = {"tls": ServerTls(cert_file=cert, key_file=key), "handshake_timeout_s": 0.5}
    run = gateway(peer(Thrift(names)).uri, front=front)
    slow = [socket.create_connection(run.front.address, timeout=20) for _ in range(20)]
    for sock in slow:
        sock.sendall(b"\x16\x03\x01\x02\x00")
    tls = TlsSettings(ca_file=authority.ca_file)
    hms = client(run.front.uri, tls=tls)
    assert hms.call("get_all_databases") == ["a"]
    for sock in slow:
        received(sock)
        sock.close()
    assert hms.call("get_all_databases") == ["a"]


def test_an_oversized_answer_of_the_metastore_is_refused(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    def tables(method: str, _args: Any) -> Any:
        if method == "get_all_databases":
            return ["x" * 50] * 100
        return types.GetTableResult(table=types.Table(tableName="t")) if method == "get_table_req" else None

    # For an alias it has to be whole here.
    run = gateway(peer(Thrift(tables)).uri, aliases={"b": "c"}, settings={"max_answer_bytes": 4000})
    connection = raw(run)
    assert "longer than 4000 bytes" in connection.ask("get_all_databases")["o1"].message
    assert run.upstream.open_connections == 0
    answer = connection.ask("get_table_req", req=types.GetTableRequest(dbName="d", tblName="t"))
    assert answer["success"].table.tableName == "t"

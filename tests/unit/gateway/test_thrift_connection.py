"""One connection of the Thrift front: calls without answers, calls that take too long, who is believed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.gateway.certificates import ServerTls
from airflow_hive_federation.gateway.handler import Call
from airflow_hive_federation.gateway.messages import CALL, EXCEPTION, ONEWAY, REPLY, Emit, head_bytes
from airflow_hive_federation.gateway.thrift_connection import LONGEST_GREETING
from airflow_hive_federation.gateway.upstream import ClientGone
from airflow_hive_federation.metastore import TlsSettings
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import encode
from tests.support.authorities import Authority
from tests.support.gateways import Clients, Gateways, Peers, RawClient, Raws, call_bytes, outcome, until
from tests.support.metastore_peers import Thrift

NAMES = ["a", "b"]


def databases(method: str, _args: Any) -> Any:
    return NAMES if method == "get_all_databases" else None


def of_kind(kind: int, method: str) -> bytes:
    """A call's bytes, with another kind of message in its head."""
    data = call_bytes(method)
    assert data[3] == CALL
    return data[:3] + bytes([kind]) + data[4:]


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


class Prepared:
    """A metastore that has the list of its databases ready, in bytes, and no tables."""

    def __init__(self, databases: list[str]) -> None:
        _, result, _ = message_types("get_all_databases")
        self._databases, self._nothing = encode(result(success=databases)), encode(result(success=[]))

    def __call__(self, connection: socket.socket) -> None:
        stream = RawClient(("", 0), connection)
        while True:
            head, _ = stream.message()
            body = self._databases if head.method == "get_all_databases" else self._nothing
            connection.sendall(head_bytes(head.method, REPLY, head.sequence_id) + body)


FRAMES = pytest.mark.parametrize("wrap", [bytes, framed], ids=["unframed", "framed"])


@FRAMES
def test_a_one_way_call_has_no_answer_and_reaches_nobody(
    peer: Peers, gateway: Gateways, raw: Raws, wrap: Callable[[bytes], bytes]
) -> None:
    served = Thrift(databases)
    run = gateway(peer(served).uri)
    connection = raw(run)
    connection.sock.sendall(wrap(of_kind(ONEWAY, "shutdown")) + wrap(call_bytes("get_all_databases", 9)))
    if wrap is framed:
        connection.reader.take(4)
    head, data = connection.message()
    # The first answer is the second call's.
    assert (head.sequence_id, outcome(head, data)) == (9, {"success": NAMES})
    assert served.calls == ["get_all_databases"]
    assert run.front.connections == 1


@FRAMES
@pytest.mark.parametrize("kind", [REPLY, EXCEPTION, 9])
def test_what_is_no_call_ends_the_connection(
    peer: Peers, gateway: Gateways, raw: Raws, wrap: Callable[[bytes], bytes], kind: int
) -> None:
    served = Thrift(databases)
    connection = raw(gateway(peer(served).uri))
    connection.sock.sendall(wrap(of_kind(kind, "get_all_databases")))
    assert connection.sock.recv(1) == b""
    assert served.calls == []


@FRAMES
@pytest.mark.parametrize("writes", [False, True], ids=["read", "write"])
def test_a_call_ends_at_its_deadline(
    peer: Peers, gateway: Gateways, raw: Raws, wrap: Callable[[bytes], bytes], writes: bool
) -> None:
    go = threading.Event()

    def wait(method: str, _args: Any) -> Any:
        if method == "get_all_tables":
            return NAMES
        assert go.wait(60)
        return None if writes else NAMES

    run = gateway(peer(Thrift(wait)).uri, front={"call_timeout_s": 0.3})
    connection = raw(run)
    # The time of a call includes that of a connection to the metastore, which from now on is there. On a busy
    # machine, it may take longer than the first call has.
    until(lambda: connection.ask("get_all_tables", db_name="d") == {"success": NAMES})
    call = (
        call_bytes("create_database", database=types.Database(name="d"))
        if writes
        else call_bytes("get_all_databases")
    )
    connection.sock.sendall(wrap(call))
    if wrap is framed:
        connection.reader.take(4)
    (fault,) = outcome(*connection.message()).values()
    assert "no complete answer within 0.3 s" in fault.message
    assert ("may have been carried out or not" in fault.message) is writes
    # The metastore's connection went with the call, and the client's did not.
    assert (run.upstream.open_connections, run.front.connections) == (0, 1)
    go.set()


def test_a_client_that_takes_an_answer_slowly_is_held_to_the_deadline_of_its_call(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    """Each piece may take write_timeout_s; all of them together may not take longer than the call."""
    long = Prepared([f"database_{number:0100}" for number in range(100_000)])
    run = gateway(peer(long).uri, front={"call_timeout_s": 1.5, "write_timeout_s": 600})
    deaf = raw(run)
    # The connection to the metastore is there, and its answer is ready: neither is what takes the time.
    until(lambda: deaf.ask("get_all_tables", db_name="d") == {"success": []})
    deaf.sock.sendall(call_bytes("get_all_databases"))
    # The answer has begun, so the front has the connection.
    assert deaf.sock.recv(1)
    until(lambda: not run.front.connections)
    assert run.upstream.open_connections == 0


def test_a_framed_answer_is_one_frame_however_long(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    long = [f"database_{number:0100}" for number in range(5_000)]
    connection = raw(gateway(peer(Thrift(lambda *_: long)).uri))
    connection.sock.sendall(framed(call_bytes("get_all_databases")))
    size = int.from_bytes(connection.reader.take(4), "big")
    head, data = connection.message()
    assert len(data) == size > 500_000
    assert outcome(head, data) == {"success": long}


def test_a_call_that_began_behind_another_may_not_drip_in(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    run = gateway(peer(Thrift(databases)).uri, front={"request_timeout_s": 0.3, "idle_timeout_s": 600})
    connection = raw(run)
    call = call_bytes("get_all_databases")
    connection.sock.sendall(call + call[:7])
    assert outcome(*connection.message()) == {"success": NAMES}
    connection.sock.settimeout(60)
    assert connection.sock.recv(1) == b""


def test_set_ugi_without_a_name_is_nobody(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    served = Thrift(databases)
    connection = raw(gateway(peer(served).uri, impersonate=True, settings={"user": "gate"}))
    assert connection.ask("set_ugi", group_names=["g"]) == {"success": ["g", ""]}
    assert connection.ask("get_all_databases") == {"success": NAMES}
    assert served.users == ["gate"]


def test_set_ugi_without_groups_and_a_second_one_change_the_user(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    served = Thrift(databases)
    connection = raw(gateway(peer(served).uri, impersonate=True))
    for user in ("ann", "bob"):
        assert connection.ask("set_ugi", user_name=user) == {"success": [user]}
        assert connection.ask("get_all_databases") == {"success": NAMES}
    assert served.users == ["ann", "bob"]


def test_set_ugi_with_more_groups_than_a_user_has_is_refused(
    peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    """The gateway keeps each connection's user and groups in memory."""
    served = Thrift(databases)
    connection = raw(gateway(peer(served).uri, impersonate=True))
    many = [f"group_{number}" for number in range(1015)]
    assert connection.ask("set_ugi", user_name="ann", group_names=many) == {"success": [*many, "ann"]}
    for groups in ([f"group_{number}" for number in range(10_000)], ["g" * LONGEST_GREETING]):
        answer = connection.ask("set_ugi", user_name="bob", group_names=groups)
        assert "Send fewer groups" in str(answer)
    # The user stays who it was.
    assert connection.ask("get_all_databases") == {"success": NAMES}
    assert served.users == ["ann"]


def test_set_ugi_with_groups_that_are_no_texts_is_refused(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    connection = raw(gateway(peer(Thrift(databases)).uri))
    numbers = b"\x0f\0\2\x08\0\0\0\1\0\0\0\1\0"
    connection.sock.sendall(call_bytes("set_ugi").removesuffix(b"\0") + numbers)
    assert "no whole set_ugi_args" in str(outcome(*connection.message()))
    assert connection.ask("get_all_databases") == {"success": NAMES}


def test_a_peer_that_sends_no_frames_is_refused_in_none(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    """Its bytes look like the length of a frame above the limit."""
    connection = raw(gateway(peer(Thrift(databases)).uri))
    connection.sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
    head, _ = connection.message()
    assert head.kind == EXCEPTION


def test_a_client_that_is_gone_within_its_call_is_no_defect(
    peer: Peers,
    gateway: Gateways,
    raw: Raws,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = gateway(peer(Thrift(databases)).uri)

    def fail(*_: Any, **__: Any) -> None:
        raise ClientGone("it closed its connection")

    monkeypatch.setattr(run.handler, "relay", fail)
    client = raw(run)
    client.sock.sendall(call_bytes("get_all_databases"))
    assert client.sock.recv(1) == b""
    assert "no refusal" not in caplog.text


def test_a_certificate_counts_only_where_clients_need_one(
    peer: Peers, gateway: Gateways, client: Clients, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.sign("server", "127.0.0.1")
    own_cert, own_key = authority.sign("alice")
    served = Thrift(databases)
    run = gateway(peer(served).uri, front={"tls": ServerTls(cert_file=cert, key_file=key)}, impersonate=True)
    tls = TlsSettings(ca_file=authority.ca_file, cert_file=own_cert, key_file=own_key)
    assert client(run.front.uri, tls=tls, user="bob").call("get_all_databases") == NAMES
    assert served.users == ["bob"]


def test_the_name_of_a_certificate_cannot_be_changed_by_set_ugi(
    peer: Peers, gateway: Gateways, client: Clients, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.sign("server", "127.0.0.1")
    own_cert, own_key = authority.sign("alice")
    served = Thrift(databases)
    tls = ServerTls(cert_file=cert, key_file=key, client_ca_file=authority.ca_file)
    run = gateway(peer(served).uri, front={"tls": tls, "believe_set_ugi": True}, impersonate=True)
    own = TlsSettings(ca_file=authority.ca_file, cert_file=own_cert, key_file=own_key)
    assert client(run.front.uri, tls=own, user="root", groups=("wheel",)).call("get_all_databases") == NAMES
    assert served.users == ["alice"]


def test_a_defect_within_an_answer_adds_nothing_to_it(
    peer: Peers, gateway: Gateways, raw: Raws, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = gateway(peer(Thrift(databases)).uri)
    half = head_bytes("get_all_databases", REPLY, 1) + b"\x0f\0"

    def fail(_call: Call, emit: Emit) -> None:
        emit(half)
        raise RuntimeError("a defect")

    monkeypatch.setattr(run.handler, "relay", fail)
    client = raw(run)
    client.sock.sendall(call_bytes("get_all_databases"))
    with client.sock.makefile("rb") as answer:
        assert answer.read() == half


def test_a_front_that_stops_ends_a_call_that_does_not_end(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    called, go = threading.Event(), threading.Event()

    def wait(_method: str, _args: Any) -> Any:
        called.set()
        assert go.wait(60)
        return NAMES

    run = gateway(peer(Thrift(wait)).uri)
    client = raw(run)
    client.sock.sendall(call_bytes("get_all_databases"))
    assert called.wait(20)
    assert run.front.stop(0) is False
    assert client.sock.recv(1) == b""
    go.set()


def test_connections_send_at_once_and_notice_dead_clients(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    run = gateway(peer(Thrift(databases)).uri)
    assert raw(run).ask("get_all_databases") == {"success": NAMES}
    (connection,) = run.front._connections
    sock = connection._sock
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

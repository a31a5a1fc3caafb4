"""The Thrift front survives plain text, certificates, slow and silent clients, floods, and an end."""

from __future__ import annotations

import contextlib
import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.certificates import Certificates, ServerTls
from airflow_hive_federation.gateway.hangups import _has_left
from airflow_hive_federation.gateway.messages import REPLY, head_bytes
from airflow_hive_federation.gateway.rules import Rule, Rules
from airflow_hive_federation.gateway.thrift_connection import Gone, ThriftConnection
from airflow_hive_federation.metastore import TlsSettings
from airflow_hive_federation.metastore.idl import types
from tests.support.authorities import Authority
from tests.support.gateways import Clients, Gateways, Peers, RawClient, Raws, call_bytes, outcome, until
from tests.support.metastore_peers import Peer, Thrift

NAMES = ["a", "b"]


def databases(method: str, _args: Any) -> Any:
    return NAMES if method == "get_all_databases" else None


def ended(sock: socket.socket) -> bool:
    """Return whether the other side has closed; waits for it."""
    sock.settimeout(20)
    try:
        while sock.recv(65536):
            pass
    except ConnectionError:
        return True
    return True


def test_plain_text_off_loopback_needs_a_word(gateway: Gateways) -> None:
    with pytest.raises(ConfigurationError, match=r"0\.0\.0\.0 in plain text"):
        gateway("thrift://x:1", front={"host": "0.0.0.0"})
    run = gateway("thrift://x:1", front={"host": "0.0.0.0", "allow_plain": True})
    assert run.front.uri.startswith("thrift://0.0.0.0:")


def test_a_port_that_is_taken_is_named(gateway: Gateways) -> None:
    port = gateway("thrift://x:1").front.address[1]
    with pytest.raises(ConfigurationError, match=f"cannot listen at 127.0.0.1:{port}"):
        gateway("thrift://x:1", front={"port": port})


def test_tls(peer: Peers, gateway: Gateways, client: Clients, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.sign("server", "localhost", "127.0.0.1")
    run = gateway(peer(Thrift(databases)).uri, front={"tls": ServerTls(cert_file=cert, key_file=key)})
    assert run.front.uri.startswith("thrift+tls://")
    tls = TlsSettings(ca_file=authority.ca_file)
    assert client(run.front.uri, tls=tls).call("get_all_databases") == NAMES
    # A client that speaks plainly is let go, and harms no other.
    with socket.create_connection(run.front.address) as plain:
        plain.sendall(call_bytes("get_all_databases"))
        assert ended(plain)
    assert client(run.front.uri, tls=tls).call("get_all_databases") == NAMES


def test_mutual_tls_identifies_the_caller(
    peer: Peers, gateway: Gateways, client: Clients, tmp_path: Path
) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    cert, key = authority.sign("server", "127.0.0.1")
    tls = ServerTls(cert_file=cert, key_file=key, client_ca_file=authority.ca_file)
    served = Thrift(databases)
    run = gateway(peer(served).uri, front={"tls": tls}, impersonate=True)
    own_cert, own_key = authority.sign("alice")
    known = TlsSettings(ca_file=authority.ca_file, cert_file=own_cert, key_file=own_key)
    # The name that set_ugi gives counts for nothing beside the certificate's.
    assert client(run.front.uri, tls=known, user="root").call("get_all_databases") == NAMES
    assert served.users == ["alice"]
    other_cert, other_key = stranger.sign("mallory")
    for tls_settings in (
        TlsSettings(ca_file=authority.ca_file),
        TlsSettings(ca_file=authority.ca_file, cert_file=other_cert, key_file=other_key),
    ):
        with pytest.raises(Exception, match=r"certificate|closed|reset|broke|unknown ca"):
            client(run.front.uri, tls=tls_settings).call("get_all_databases")
    assert served.users == ["alice"]


def test_certificates_are_read_again(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.sign("server", "127.0.0.1")
    certificates = Certificates(ServerTls(cert_file=cert, key_file=key))
    first = certificates.context()
    assert certificates.context() is first
    new_cert, new_key = authority.sign("newer", "127.0.0.1")
    Path(new_cert).replace(cert)
    # The key does not belong to it yet: the former pair serves on.
    assert certificates.context() is first
    Path(new_key).replace(key)
    assert certificates.context() is not first


def test_framed_clients_are_answered_in_frames(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    connection = raw(gateway(peer(Thrift(databases)).uri))
    for _ in range(2):
        call = call_bytes("get_all_databases")
        connection.sock.sendall(len(call).to_bytes(4, "big") + call)
        size = int.from_bytes(connection.reader.take(4), "big")
        head, data = connection.message()
        assert len(data) == size
        assert outcome(head, data) == {"success": NAMES}
    connection.sock.sendall((1 << 30).to_bytes(4, "big"))
    assert ended(connection.sock)


def test_calls_may_be_sent_ahead(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    connection = raw(gateway(peer(Thrift(databases)).uri))
    connection.sock.sendall(b"".join(call_bytes("get_all_databases", number) for number in range(5)))
    assert [connection.message()[0].sequence_id for _ in range(5)] == [0, 1, 2, 3, 4]


def test_what_is_no_thrift_gets_an_answer_and_is_let_go(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    run = gateway(peer(Thrift(databases)).uri, front={"max_request_bytes": 10_000})
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00" * 9, b"\xff" * 100):
        with socket.create_connection(run.front.address) as sock:
            sock.sendall(data)
            assert ended(sock)
    big = raw(run)
    big.sock.sendall(call_bytes("get_database", name="x" * 20_000))
    head, data = big.message()
    assert "longer than 10000 bytes" in str(outcome(head, data))
    assert ended(big.sock)
    assert raw(run).ask("get_all_databases") == {"success": NAMES}


def test_a_call_that_drips_in_is_let_go(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    run = gateway(peer(Thrift(databases)).uri, front={"request_timeout_s": 0.3})
    slow = raw(run)
    slow.sock.sendall(call_bytes("get_all_databases")[:5])
    assert ended(slow.sock)
    assert raw(run).ask("get_all_databases") == {"success": NAMES}


def test_each_byte_of_a_call_that_drips_in_buys_no_time(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    slow = raw(gateway(peer(Thrift(databases)).uri, front={"request_timeout_s": 0.5, "idle_timeout_s": 600}))
    # At twenty bytes per second, the call would take ten minutes.
    call = call_bytes("get_database", name="x" * 12_000)
    stopped = threading.Event()

    def drip() -> None:
        with contextlib.suppress(OSError):
            for byte in call:
                slow.sock.sendall(bytes([byte]))
                if stopped.wait(0.05):
                    return

    thread = threading.Thread(target=drip)
    thread.start()
    slow.sock.settimeout(60)
    assert ended(slow.sock)
    stopped.set()
    thread.join()


def test_a_silent_client_is_let_go(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    run = gateway(peer(Thrift(databases)).uri, front={"idle_timeout_s": 0.3})
    silent = raw(run)
    assert silent.ask("get_all_databases") == {"success": NAMES}
    assert ended(silent.sock)


def test_a_client_that_never_reads_holds_nothing(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    long = [f"database_{number:0100}" for number in range(100_000)]
    served = Thrift(lambda *_: long)
    run = gateway(peer(served).uri, front={"write_timeout_s": 0.3}, max_connections=1)
    deaf = raw(run)
    deaf.sock.sendall(call_bytes("get_all_databases") * 3)
    until(lambda: served.calls and not run.front.connections)
    # Its answer was never whole in memory, and its connection to the metastore is free again.
    other = raw(run)
    assert len(other.ask("get_all_databases")["success"]) == len(long)


def test_connections_beyond_the_limit_are_closed(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    run = gateway(peer(Thrift(databases)).uri, front={"max_connections": 3})
    kept = [raw(run) for _ in range(3)]
    assert [connection.ask("get_all_databases") for connection in kept] == [{"success": NAMES}] * 3
    threads = threading.active_count()
    with ExitStack() as stack:
        for _ in range(200):
            sock = stack.enter_context(socket.create_connection(run.front.address))
            assert ended(sock)
    assert run.front.refused == 200
    assert threading.active_count() <= threads
    assert [connection.ask("get_all_databases") for connection in kept] == [{"success": NAMES}] * 3
    kept[0].close()
    until(lambda: run.front.connections == 2)
    assert raw(run).ask("get_all_databases") == {"success": NAMES}


def test_a_metastore_that_dies_in_the_middle_of_an_answer(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    def half(sock: socket.socket) -> None:
        stream = RawClient(("", 0), sock)
        head, _ = stream.message()
        if head.method == "set_ugi":
            no_groups = b"\x0f\0\0\x0b\0\0\0\0\0"
            sock.sendall(head_bytes("set_ugi", REPLY, head.sequence_id) + no_groups)
            head, _ = stream.message()
        sock.sendall(head_bytes("get_all_databases", REPLY, head.sequence_id) + b"\x0f\0\0\x0b\0\0")

    run = gateway(peer(half).uri)
    connection = raw(run)
    answer = connection.ask("get_all_databases")
    assert "upstream main" in answer["o1"].message
    assert run.upstream.open_connections == 0


def test_a_defect_is_no_text_for_clients(
    peer: Peers,
    gateway: Gateways,
    raw: Raws,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = gateway(peer(Thrift(databases)).uri)
    first, other = raw(run), raw(run)
    with monkeypatch.context() as patch:

        def fail(*_: Any, **__: Any) -> None:
            raise RuntimeError("s3cret")

        patch.setattr(run.handler, "relay", fail)
        answer = first.ask("get_all_databases")
        assert answer["o1"].message == "The gateway failed; its log has the reason."
        assert ended(first.sock)
    assert "s3cret" in caplog.text
    assert other.ask("get_all_databases") == {"success": NAMES}


@pytest.mark.parametrize(
    "names", [b"\x0f\0\0\x0c\0\0\0\1\x0b\0\1\0\0\0\1a\0\0", b"\x0f\0\0\x0b\0\0\0\1\0\0\0\1\x97\0"],
    ids=["structs", "no_utf8"],
)  # fmt: skip
def test_names_that_are_none_are_no_reason_to_fail(
    peer: Peers, gateway: Gateways, raw: Raws, names: bytes
) -> None:
    def odd(sock: socket.socket) -> None:
        stream = RawClient(("", 0), sock)
        while True:
            head, _ = stream.message()
            body = b"\x0f\0\0\x0b\0\0\0\0\0" if head.method == "set_ugi" else names
            sock.sendall(head_bytes(head.method, REPLY, head.sequence_id) + body)

    run = gateway(peer(odd).uri, aliases={"x": "y"})
    connection = raw(run)
    connection.sock.sendall(call_bytes("get_all_databases"))
    head, data = connection.message()
    if b"\x97" in names:
        assert data.endswith(names)
    else:
        assert "the call or its answer is malformed" in str(outcome(head, data))
    rules = Rules((Rule(databases=("*", "!a")),))
    other = raw(gateway(peer(odd).uri, rules=rules))
    other.sock.sendall(call_bytes("get_all_databases"))
    assert b"\1a" not in other.message()[1]


def test_no_client_is_taken_while_it_stops(gateway: Gateways) -> None:
    run = gateway("thrift://x:1")
    run.front.stop(0)
    ours, theirs = socket.socketpair()
    # The kernel had accepted it before the listener was closed.
    run.front._take(ours, "127.0.0.1")
    assert ended(theirs)
    assert (run.front.connections, run.front.refused) == (0, 1)
    theirs.close()


def test_only_this_machine_is_believed_unless_the_settings_name_others(gateway: Gateways) -> None:
    strict = gateway("thrift://x:1").front
    assert [strict._believes(peer) for peer in ("127.0.0.1", "::1", "10.0.0.1")] == [True, True, False]
    assert gateway("thrift://x:1", front={"believe_set_ugi": True}).front._believes("10.0.0.1")


@pytest.mark.parametrize("impersonate", [False, True])
@pytest.mark.parametrize("believed", [False, True])
def test_a_name_that_is_not_believed_is_nobodys(
    gateway: Gateways, peer: Peers, impersonate: bool, believed: bool
) -> None:
    """Nobody of another machine is no user of the gateway's own, for whom others may be impersonated."""
    served = Thrift(databases)
    run = gateway(peer(served).uri, impersonate=impersonate, settings={"user": "gate"})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname(), timeout=20)
        theirs, _ = listener.accept()
    connection = ThriftConnection(
        run.handler, run.front.settings, theirs, "10.0.0.1", believed=believed, hangups=run.front._hangups
    )
    thread = threading.Thread(target=_served, args=(connection,))
    thread.start()
    far = RawClient(("", 0), ours)
    answers = []
    for name in ("mallory", ""):
        assert far.ask("set_ugi", user_name=name, group_names=["wheel"])
        answers.append(far.ask("get_all_databases"))
    far.close()
    thread.join(20)
    theirs.close()
    named = impersonate and believed
    assert ["success" in answer for answer in answers] == [named or not impersonate, not impersonate]
    assert set(served.users) == ({"mallory"} if named else set() if impersonate else {"gate"})
    if impersonate:
        assert "wants the user's name" in str(answers[1])


def _served(connection: ThriftConnection) -> None:
    with contextlib.suppress(OSError, Gone):
        connection.serve(None)


def test_a_client_for_whom_there_is_no_thread_is_let_go(
    peer: Peers, gateway: Gateways, raw: Raws, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = gateway(peer(Thrift(databases)).uri)
    with monkeypatch.context() as patch:
        patch.setattr(run.front, "_serve", None)
        start = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            if thread.name == "thrift-client":
                raise RuntimeError("can't start new thread")
            start(thread)

        patch.setattr(threading.Thread, "start", refuse)
        with socket.create_connection(run.front.address) as sock:
            assert ended(sock)
    assert raw(run).ask("get_all_databases") == {"success": NAMES}


def test_stopping_lets_calls_end_and_takes_no_more(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    began, release = threading.Event(), threading.Event()

    def wait(_method: str, _args: Any) -> Any:
        began.set()
        release.wait(30)
        return NAMES

    run = gateway(peer(Thrift(wait)).uri)
    busy, idle = raw(run), raw(run)
    busy.sock.sendall(call_bytes("get_all_databases"))
    assert began.wait(20)
    stopped: list[bool] = []
    address = run.front.address
    thread = threading.Thread(target=lambda: stopped.append(run.front.stop(30)))
    thread.start()
    assert ended(idle.sock)
    until(lambda: run.front.connections == 1)
    (connection,) = run.front._connections
    until(lambda: connection._draining)
    # Else the running call would be cancelled, as that of a client that has left.
    assert not _has_left(connection._sock.fileno())
    release.set()
    assert outcome(*busy.message()) == {"success": NAMES}
    assert ended(busy.sock)
    thread.join(30)
    assert stopped == [True]
    with pytest.raises(OSError, match=r"refused|reset"):
        socket.create_connection(address)


def test_a_hung_metastore_holds_up_no_other(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    release = threading.Event()
    listening: Peer = peer(Thrift(lambda *_: release.wait(30)))
    hung, fine = gateway(listening.uri), gateway(peer(Thrift(databases)).uri)
    raw(hung).sock.sendall(call_bytes("create_database", database=types.Database(name="x")))
    assert raw(fine).ask("get_all_databases") == {"success": NAMES}
    release.set()


def test_tls_handshakes_do_not_wait_for_each_other(
    peer: Peers, gateway: Gateways, client: Clients, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.sign("server", "127.0.0.1")
    front = {"tls": ServerTls(cert_file=cert, key_file=key), "handshake_timeout_s": 0.5}
    run = gateway(peer(Thrift(databases)).uri, front=front)
    with socket.create_connection(run.front.address) as mute:
        tls = TlsSettings(ca_file=authority.ca_file)
        assert client(run.front.uri, tls=tls).call("get_all_databases") == NAMES
        assert ended(mute)

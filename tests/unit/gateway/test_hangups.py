"""Clients of the Thrift front that leave while their call is under way."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.gateway.certificates import ServerTls
from airflow_hive_federation.gateway.handler import Cancellation
from airflow_hive_federation.gateway.hangups import Hangups
from airflow_hive_federation.gateway.thrift_connection import Gone, ThriftConnection
from airflow_hive_federation.metastore import TlsSettings
from tests.support.authorities import Authority
from tests.support.gateways import Gateways, Peers, RawClient, Raws, call_bytes, outcome, until
from tests.support.metastore_peers import Thrift


class Watched:
    """A metastore whose calls wait, and that sees when its connection is closed instead."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.left = threading.Semaphore(0)
        self.thrift = Thrift(self._answer)
        self.connection: Any = None
        self.answers = False

    def __call__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.thrift(connection)

    def _answer(self, _method: str, _args: Any) -> Any:
        if self.answers:
            return ["a"]
        self.asked.release()
        connection = self.connection
        connection.settimeout(30)
        if not connection.recv(1):
            self.left.release()
        raise EOFError


def framed(call: bytes) -> bytes:
    return len(call).to_bytes(4, "big") + call


@pytest.mark.parametrize("wrap", [bytes, framed], ids=["unframed", "framed"])
@pytest.mark.parametrize("method", ["get_all_databases", "get_config_value"])
def test_a_client_that_leaves_ends_its_call(
    peer: Peers, gateway: Gateways, raw: Raws, wrap: Callable[[bytes], bytes], method: str
) -> None:
    served = Watched()
    run = gateway(peer(served).uri, max_connections=1)
    connection = raw(run)
    connection.sock.sendall(wrap(call_bytes(method)))
    assert served.asked.acquire(timeout=20)
    assert run.upstream.open_connections == 1
    connection.close()
    assert served.left.acquire(timeout=20)
    # The connection was thrown away, and not kept for the next call.
    with run.front._lock:
        assert run.front._lock.wait_for(lambda: not run.front.connections, timeout=20)
    assert run.upstream.open_connections == 0
    served.answers = True
    assert raw(run).ask("get_all_databases") == {"success": ["a"]}


def test_a_client_of_tls_that_leaves_ends_its_call(peer: Peers, gateway: Gateways, tmp_path: Path) -> None:
    authority, served = Authority(tmp_path), Watched()
    cert, key = authority.sign("server", "127.0.0.1")
    run = gateway(peer(served).uri, front={"tls": ServerTls(cert_file=cert, key_file=key)})
    context = TlsSettings(ca_file=authority.ca_file).context()
    with socket.create_connection(run.front.address) as plain:
        secured = context.wrap_socket(plain, server_hostname="127.0.0.1")
        secured.sendall(call_bytes("get_all_databases"))
        assert served.asked.acquire(timeout=20)
        secured.close()
        assert served.left.acquire(timeout=20)


def test_a_client_that_leaves_waits_for_no_connection(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    served = Watched()
    run = gateway(peer(served).uri, max_connections=1)
    first, second = raw(run), raw(run)
    first.sock.sendall(call_bytes("get_all_databases"))
    assert served.asked.acquire(timeout=20)
    second.sock.sendall(call_bytes("get_all_databases"))
    # A client that left before would be one between two calls.
    until(lambda: run.upstream._changed._waiters)  # type: ignore[attr-defined]
    second.close()
    # It ends while the first one still has the only connection.
    with run.front._lock:
        assert run.front._lock.wait_for(lambda: run.front.connections == 1, timeout=20)
    assert run.upstream.open_connections == 1
    first.close()
    assert served.left.acquire(timeout=20)


def test_draining_is_no_leaving(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    asked, go = threading.Event(), threading.Event()

    def wait(_method: str, _args: Any) -> Any:
        asked.set()
        return ["a"] if go.wait(30) else None

    run = gateway(peer(Thrift(wait)).uri)
    first = raw(run)
    first.sock.sendall(call_bytes("get_all_databases"))
    assert asked.wait(20)
    stopped: list[bool] = []
    thread = threading.Thread(target=lambda: stopped.append(run.front.stop(30)))
    thread.start()
    (connection,) = run.front._connections
    until(lambda: connection._draining)
    go.set()
    assert outcome(*first.message()) == {"success": ["a"]}
    thread.join(30)
    assert stopped == [True]


def test_calls_that_outlast_the_drain_are_cancelled(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    served = Watched()
    run = gateway(peer(served).uri)
    raw(run).sock.sendall(call_bytes("get_all_databases"))
    assert served.asked.acquire(timeout=20)
    assert run.front.stop(0) is False
    assert served.left.acquire(timeout=20)


def test_the_call_of_a_client_that_leaves_is_cancelled() -> None:
    hangups = Hangups()
    ours, theirs = socket.socketpair()
    under_way, cancelled = Cancellation(), threading.Event()
    under_way.on_cancel(cancelled.set)
    with hangups.watching(ours, under_way):
        # What it sent ahead does not hide that it has left.
        theirs.sendall(b"more")
        theirs.close()
        assert cancelled.wait(20)
    hangups.close()
    ours.close()


def test_an_event_of_a_call_that_has_ended_cancels_no_other() -> None:
    """The kernel gives the number of a closed connection to the next one."""
    hangups = Hangups()
    ours, theirs = socket.socketpair()
    done, under_way = Cancellation(), Cancellation()
    with hangups.watching(ours, done):
        pass
    # As the thread does with an event that it got before the call had ended.
    hangups._look_at(ours.fileno())
    with hangups.watching(ours, under_way):
        hangups._look_at(ours.fileno())
        assert not under_way.cancelled
        theirs.close()
        hangups._look_at(ours.fileno())
        assert under_way.cancelled
    assert not done.cancelled
    hangups.close()
    ours.close()


def open_files() -> set[Path]:
    """The files that the descriptors of this process stand for, those of both ends of a pipe among them."""
    files = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            files.add(descriptor.readlink())
    return files


def test_it_ends_once_and_leaves_nothing() -> None:
    hangups = Hangups()
    pipe = Path(f"/proc/self/fd/{hangups._wake_read}").readlink()
    assert pipe in open_files()
    hangups.close()
    assert not hangups._thread.is_alive()
    assert hangups._epoll.closed
    # Another thread may have got the numbers of its descriptors for files of its own.
    assert pipe not in open_files()
    hangups.close()
    ours, theirs = socket.socketpair()
    call = Cancellation()
    with hangups.watching(ours, call):
        theirs.close()
    ours.close()
    assert not call.cancelled


def test_a_connection_that_is_closed_already_is_not_watched() -> None:
    hangups = Hangups()
    ours, theirs = socket.socketpair()
    ours.close()
    with hangups.watching(ours, Cancellation()):
        assert hangups._calls == {}
    hangups.close()
    theirs.close()


def test_a_drain_that_begins_behind_a_call_does_not_cancel_it(peer: Peers, gateway: Gateways) -> None:
    """It ends this side's reading, which looks to the kernel as if the client had left."""
    run = gateway("thrift://x:1")
    hangups = run.front._hangups

    def answer(_method: str, _args: Any) -> Any:
        # The thread has looked at all that happened when it has cancelled this.
        ours, theirs = socket.socketpair()
        other, cancelled = Cancellation(), threading.Event()
        other.on_cancel(cancelled.set)
        with hangups.watching(ours, other):
            theirs.close()
            assert cancelled.wait(20)
        ours.close()
        return ["a"]

    handler = gateway(peer(Thrift(answer)).uri).handler
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname(), timeout=20)
        theirs, _ = listener.accept()
    connection = ThriftConnection(
        handler, run.front.settings, theirs, "127.0.0.1", believed=True, hangups=hangups
    )
    read = connection._message

    def read_and_drain() -> Any:
        message = read()
        connection.drain()
        return message

    connection._message = read_and_drain  # type: ignore[method-assign]
    thread = threading.Thread(target=_serve, args=(connection,))
    thread.start()
    client = RawClient(("", 0), ours)
    assert client.ask("get_all_databases") == {"success": ["a"]}
    thread.join(20)
    assert not thread.is_alive()
    ours.close()
    theirs.close()


def _serve(connection: ThriftConnection) -> None:
    with contextlib.suppress(OSError, Gone):
        connection.serve(None)

"""Clients of the Thrift front that leave while their call is under way."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.gateway.certificates import ServerTls
from airflow_hive_federation.gateway.handler import Cancellation
from airflow_hive_federation.gateway.hangups import Hangups
from airflow_hive_federation.metastore import TlsSettings
from tests.unit.gateway.certificate_files import Authority
from tests.unit.gateway.gateways import Gateways, Peers, Raws, call_bytes, outcome
from tests.unit.metastore.metastore_peers import Thrift


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
    one = raw(run)
    one.sock.sendall(wrap(call_bytes(method)))
    assert served.asked.acquire(timeout=20)
    assert run.upstream.open_connections == 1
    one.close()
    assert served.left.acquire(timeout=20)
    # The connection was thrown away, and not kept for the next call.
    with run.front._lock:
        assert run.front._lock.wait_for(lambda: not run.front.connections, timeout=20)
    assert run.upstream.open_connections == 0
    served.answers = True
    assert raw(run).ask("get_all_databases") == {"success": ["a"]}


def test_a_client_of_tls_that_leaves_ends_its_call(peer: Peers, gateway: Gateways, tmp_path: Path) -> None:
    authority, served = Authority(tmp_path), Watched()
    cert, key = authority.issue("server", hosts=["127.0.0.1"])
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
    one = raw(run)
    one.sock.sendall(call_bytes("get_all_databases"))
    assert asked.wait(20)
    stopped: list[bool] = []
    thread = threading.Thread(target=lambda: stopped.append(run.front.stop(30)))
    thread.start()
    (connection,) = run.front._connections
    while not connection._draining:
        time.sleep(0.01)
    go.set()
    assert outcome(*one.message()) == {"success": ["a"]}
    thread.join(30)
    assert stopped == [True]


def test_calls_that_outlast_the_drain_are_cancelled(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    served = Watched()
    run = gateway(peer(served).uri)
    raw(run).sock.sendall(call_bytes("get_all_databases"))
    assert served.asked.acquire(timeout=20)
    assert run.front.stop(0) is False
    assert served.left.acquire(timeout=20)


def test_a_call_that_has_ended_is_not_cancelled_and_one_that_has_not_is() -> None:
    hangups = Hangups()
    ours, theirs = socket.socketpair()
    done, under_way, cancelled = Cancellation(), Cancellation(), threading.Event()
    with hangups.watching(ours, done):
        pass
    under_way.on_cancel(cancelled.set)
    with hangups.watching(ours, under_way):
        # What it sent ahead does not hide that it has left.
        theirs.sendall(b"more")
        theirs.close()
        assert cancelled.wait(20)
    assert not done.cancelled
    before = threading.active_count()
    hangups.close()
    hangups.close()
    assert threading.active_count() == before - 1
    # Nobody looks any more, and nothing fails.
    with hangups.watching(ours, Cancellation()):
        pass
    ours.close()

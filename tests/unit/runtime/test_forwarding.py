"""Connections of a listener are carried to a far server, and end with it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_hive_federation.errors import TunnelError
from airflow_hive_federation.metastore.grpc_route import local_way
from airflow_hive_federation.runtime.forwarding import forwarding

TIMEOUT_S = 20.0


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that answers each connection with what it receives."""

    def answer(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(4096):
                connection.sendall(data)

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()
        server.shutdown(socket.SHUT_RDWR)
        thread.join(TIMEOUT_S)


def ask(near: socket.socket, size: int) -> bytes:
    near.sendall(b"x" * size)
    received = b""
    while len(received) < size:
        received += near.recv(65536)
    return received


def test_each_connection_has_a_far_end_of_its_own(echo: tuple[str, int]) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        forwarding(listener, lambda: socket.create_connection(echo, TIMEOUT_S)),
        socket.create_connection(listener.getsockname(), TIMEOUT_S) as first,
        socket.create_connection(listener.getsockname(), TIMEOUT_S) as second,
    ):
        assert ask(first, 1_000_000) == b"x" * 1_000_000
        first.close()
        assert ask(second, 10) == b"x" * 10


def test_open_connections_end_with_the_block(echo: tuple[str, int]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with forwarding(listener, lambda: socket.create_connection(echo, TIMEOUT_S)):
            near = socket.create_connection(listener.getsockname(), TIMEOUT_S)
            assert ask(near, 3) == b"xxx"
        with near:
            assert near.recv(1) == b""


def test_a_near_end_is_closed_if_the_far_server_cannot_be_reached(caplog: pytest.LogCaptureFixture) -> None:
    def dial() -> socket.socket:
        raise TunnelError("hop 2 does not answer")

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        forwarding(listener, dial),
        socket.create_connection(listener.getsockname(), TIMEOUT_S) as near,
    ):
        assert near.recv(1) == b""
    assert "hop 2 does not answer" in caplog.text


class Dialer:
    """A route of its own to a server, which counts its connections."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.connections: list[socket.socket] = []

    def dial(self, host: str, port: int, timeout_s: float) -> socket.socket:
        assert (host, port) == ("far", 9083)
        self.connections.append(socket.create_connection(self.address, timeout_s))
        return self.connections[-1]


def test_the_connection_that_was_tried_is_the_first_one(echo: tuple[str, int]) -> None:
    dialer = Dialer(echo)
    with local_way(dialer, "far", 9083) as address:  # type: ignore[arg-type]
        assert len(dialer.connections) == 1
        path = address.removeprefix("unix:")
        for count in (1, 2):
            with socket.socket(socket.AF_UNIX) as near:
                near.settimeout(TIMEOUT_S)
                near.connect(path)
                assert ask(near, 5) == b"xxxxx"
            assert len(dialer.connections) == count
    assert not Path(path).exists()
    for thread in threading.enumerate():
        if thread.name == "forwarded":
            thread.join(TIMEOUT_S)
    assert all(connection.fileno() == -1 for connection in dialer.connections)

"""TLS over a wire that is no socket: certificates, silence, and an end in the middle."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from airflow_hive_federation.metastore.channel import Deadline
from airflow_hive_federation.metastore.settings import TlsSettings
from airflow_hive_federation.metastore.tls_wire import TlsWire
from tests.support.tls_metastore import Identity, make_identity


class SocketWire:
    """A wire over a socket, which sends and receives little at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.closed = False
        self.waiting = False
        self.timeouts: list[float | None] = []

    def settimeout(self, seconds: float | None) -> None:
        self.timeouts.append(seconds)
        self._sock.settimeout(seconds)

    def send(self, data: bytes | memoryview) -> int:
        return self._sock.send(data[:700])

    def recv(self, size: int) -> bytes:
        return self._sock.recv(min(size, 900))

    def recv_into(self, buffer: bytearray) -> int:
        raise NotImplementedError

    def has_input(self) -> bool:
        return self.waiting

    def close(self) -> None:
        self.closed = True
        self._sock.close()


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return make_identity(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, SocketWire]]:
    there, here = socket.socketpair()
    with there, here:
        there.settimeout(60)
        yield there, SocketWire(here)


def serving(there: socket.socket, identity: Identity) -> ssl.SSLSocket:
    """The server's end, before the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key_file)
    return context.wrap_socket(there, server_side=True, do_handshake_on_connect=False)


def sent(wire: SocketWire, identity: Identity, secure: ssl.SSLSocket, *records: bytes) -> TlsWire:
    """The client's end, after the server has sent its records."""

    def serve() -> None:
        secure.do_handshake()
        for record in records:
            secure.sendall(record)

    thread = threading.Thread(target=serve)
    thread.start()
    made = TlsWire(wire, trusting(identity), "127.0.0.1", Deadline(60))
    thread.join(60)
    return made


def echo(there: socket.socket, identity: Identity) -> threading.Thread:
    """Send everything back by TLS, until the end of the first message of four bytes."""

    def serve() -> None:
        # The client may refuse the certificate.
        with suppress(ssl.SSLError, ConnectionError), serving(there, identity) as secure:
            secure.do_handshake()
            while data := secure.recv(65536):
                secure.sendall(data)
                if data == b"end!":
                    return

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def trusting(identity: Identity) -> ssl.SSLContext:
    return TlsSettings(ca_file=str(identity.certificate)).context()


def test_bytes_go_there_and_back(ends: tuple[socket.socket, SocketWire], identity: Identity) -> None:
    there, wire = ends
    thread = echo(there, identity)
    secure = TlsWire(wire, trusting(identity), "127.0.0.1", Deadline(60))
    secure.settimeout(60)
    sent = bytes(range(256)) * 1000
    for first in range(0, len(sent), 10_000):
        piece = sent[first : first + 10_000]
        assert secure.send(piece) == len(piece)
        received = b""
        while len(received) < len(piece):
            received += secure.recv(4096)
        assert received == piece
    assert not secure.has_input()
    secure.send(b"end!")
    buffer = bytearray(4)
    assert secure.recv_into(buffer) == 4
    assert bytes(buffer) == b"end!"
    assert secure.recv(1) == b""
    secure.close()
    assert wire.closed
    thread.join(60)


@pytest.mark.parametrize("host", ["127.0.0.2", "localhost"])
def test_a_certificate_of_another_host(
    ends: tuple[socket.socket, SocketWire], identity: Identity, host: str
) -> None:
    there, wire = ends
    thread = echo(there, identity)
    with pytest.raises(ssl.SSLCertVerificationError):
        TlsWire(wire, trusting(identity), host, Deadline(60))
    wire.close()
    thread.join(60)


def test_a_server_that_is_silent_or_ends(
    ends: tuple[socket.socket, SocketWire], identity: Identity, tmp_path: Path
) -> None:
    there, wire = ends
    with pytest.raises(TimeoutError, match=r"no complete answer within 0\.2 s"):
        TlsWire(wire, trusting(identity), "127.0.0.1", Deadline(0.2))
    there.close()
    wire.settimeout(60)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        TlsWire(wire, trusting(identity), "127.0.0.1", Deadline(60))


def test_input_that_waits(ends: tuple[socket.socket, SocketWire], identity: Identity) -> None:
    """A connection with input while no call is under way is stale, wherever the input is."""
    there, wire = ends
    with serving(there, identity) as server:
        client = sent(wire, identity, server, b"a" * 50, b"b" * 50)
        client.settimeout(60)
        assert client.recv(100) == b"a" * 50
        assert client.has_input(), "a record"
        assert client.recv(10) == b"b" * 10
        assert client.has_input(), "a part of a record"
        assert client.recv(100) == b"b" * 40
        assert not client.has_input()
        wire.waiting = True
        assert client.has_input(), "input of the wire"


def test_a_record_in_pieces_has_one_deadline(
    ends: tuple[socket.socket, SocketWire], identity: Identity
) -> None:
    there, wire = ends
    with serving(there, identity) as server:
        client = sent(wire, identity, server, b"a" * 10_000)
        client.settimeout(60)
        wire.timeouts.clear()
        assert client.recv(10_000) == b"a" * 10_000
        limits = [limit for limit in wire.timeouts if limit is not None]
        assert len(limits) > 10
        assert limits[0] > limits[-1]
        for seconds in (0.05, 1e-9):
            client.settimeout(seconds)
            with pytest.raises(TimeoutError):
                client.recv(1)


@pytest.mark.parametrize("way", ["its own end", "none", "a part of a record"])
def test_the_end_of_a_server(ends: tuple[socket.socket, SocketWire], identity: Identity, way: str) -> None:
    there, wire = ends
    with serving(there, identity) as server:
        client = sent(wire, identity, server, b"answer")
        client.settimeout(60)
        assert client.recv(100) == b"answer"
        if way == "its own end":
            server.setblocking(False)
            # It does not wait for the client's.
            with suppress(ssl.SSLWantReadError):
                server.unwrap()
        elif way == "a part of a record":
            socket.socket.send(server, b"\x17\x03\x03\x00\x50part")
    assert client.recv(1) == b""

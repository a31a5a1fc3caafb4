"""TLS over a wire that is no socket: certificates, silence, and an end in the middle."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from airflow_hive_federation.metastore.settings import TlsSettings
from airflow_hive_federation.metastore.tls_wire import TlsWire
from airflow_hive_federation.metastore.transport import Deadline
from tests.support.tls_metastore import Identity, make_identity


class SocketWire:
    """A wire over a socket, which sends and receives little at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.closed = False

    def settimeout(self, seconds: float | None) -> None:
        self._sock.settimeout(seconds)

    def send(self, data: bytes | memoryview) -> int:
        return self._sock.send(data[:700])

    def recv(self, size: int) -> bytes:
        return self._sock.recv(min(size, 900))

    def recv_into(self, buffer: bytearray) -> int:
        raise NotImplementedError

    def has_input(self) -> bool:
        return False

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


def echo(there: socket.socket, identity: Identity) -> threading.Thread:
    """Send everything back by TLS, until the end of the first message of four bytes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key_file)

    def serve() -> None:
        # The client may refuse the certificate.
        with suppress(ssl.SSLError, ConnectionError), context.wrap_socket(there, server_side=True) as secure:
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

"""Opens a local port that leads through a tunnel, for programs without support for tunnels.

Every user of this machine may connect to the port: our own clients use a channel of the tunnel instead, and
open no port.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from airflow_hive_federation.errors import ConfigurationError, TunnelError
from airflow_hive_federation.tunnel.tunnel import Tunnel, TunnelSocket

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
_CHUNK_BYTES = 1 << 16
_DIAL_TIMEOUT_S = 20.0


@contextmanager
def listening(tunnel: Tunnel, host: str, port: int, *, address: str = LOOPBACK) -> Iterator[int]:
    """Listen on this machine while the block runs, and forward each connection through a tunnel.

    :param tunnel: tunnel, which the function connects before the block begins.
    :param host: host to connect to from the tunnel's last hop.
    :param port: its port.
    :param address: loopback address to listen on.
    :return: the port to connect to.
    :raises ConfigurationError: if the address is no loopback address.
    :raises TunnelError: (a subclass) if a hop fails.
    """
    _check(address)
    tunnel.connect()
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((address, 0)))
        forwarder = _Forwarder(tunnel, host, port)
        thread = threading.Thread(target=forwarder.accept, args=(listener,), name="tunnel-listener")
        stack.callback(thread.join)
        stack.callback(forwarder.close)
        # The shutdown makes accept() return, which ends the loop.
        stack.callback(listener.shutdown, socket.SHUT_RDWR)
        thread.start()
        yield int(listener.getsockname()[1])


def _check(address: str) -> None:
    try:
        inside = ipaddress.ip_address(address).is_loopback
    except ValueError:
        inside = False
    if not inside:
        raise ConfigurationError(
            f"{address} is not a loopback address: the tunnel would be open to others.",
            remedy=f"Take {LOOPBACK}.",
        )


class _Forwarder:
    """Forwards connections through a tunnel, each by two threads."""

    def __init__(self, tunnel: Tunnel, host: str, port: int) -> None:
        self._tunnel = tunnel
        self._target = (host, port)
        self._lock = threading.Lock()
        self._ends: set[socket.socket | TunnelSocket] = set()
        self._closed = False

    def accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), name="tunnel-connection", daemon=True).start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for end in self._ends:
                _end(end)

    def _carry(self, near: socket.socket) -> None:
        with near:
            try:
                far = self._tunnel.dial(*self._target, _DIAL_TIMEOUT_S)
            except TunnelError as error:
                # The program at the other end only sees that its connection is closed.
                log.warning("A connection is closed: %s", error)
                return
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._kept(near, far):
                back = threading.Thread(target=_pump, args=(far, near), daemon=True)
                back.start()
                _pump(near, far)
                back.join()

    @contextmanager
    def _kept(self, near: socket.socket, far: TunnelSocket) -> Iterator[None]:
        with self._lock:
            self._ends |= {near, far}
            if self._closed:
                _end(near)
                _end(far)
        try:
            yield
        finally:
            far.close()
            with self._lock:
                self._ends -= {near, far}


def _pump(source: socket.socket | TunnelSocket, target: socket.socket | TunnelSocket) -> None:
    """Forward bytes until either end is closed, and close both: Thrift never closes one direction only."""
    with suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            while data:
                data = data[target.send(data) :]
    _end(source)
    _end(target)


def _end(connection: socket.socket | TunnelSocket) -> None:
    if isinstance(connection, TunnelSocket):
        connection.close()
        return
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)

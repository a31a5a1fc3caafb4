"""Leads grpcio's connections through a dialer, an SSH route for instance.

grpcio opens its connections itself, and accepts nothing but addresses. So the module gives it a Unix socket
in a private directory, to which only this user can connect, and two threads forward each connection.
"""

from __future__ import annotations

import logging
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.metastore.settings import Dialer, Wire

log = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 16
_DIAL_TIMEOUT_S = 20.0


@contextmanager
def local_way(dialer: Dialer, host: str, port: int) -> Iterator[str]:
    """Listen on this machine while the block runs, and forward each connection through a dialer.

    :param host: host to which the dialer connects.
    :param port: its port.
    :return: the address for grpcio.
    :raises HiveFederationError: if the dialer cannot connect.
    """
    # The first connection is opened here, so that its error is raised: grpcio would only see a closed socket.
    first = dialer.dial(host, port, _DIAL_TIMEOUT_S)
    with ExitStack() as stack:
        stack.callback(first.close)
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="grpc-way-"))
        path = str(Path(directory) / "s")
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        listener.listen(4)
        way = _Way(dialer, host, port, first)
        thread = threading.Thread(target=way.accept, args=(listener,), name="grpc-way", daemon=True)
        stack.callback(thread.join)
        stack.callback(way.close)
        stack.callback(listener.shutdown, socket.SHUT_RDWR)
        thread.start()
        yield f"unix:{path}"


class _Way:
    def __init__(self, dialer: Dialer, host: str, port: int, first: Wire) -> None:
        self._dialer = dialer
        self._target = (host, port)
        self._first: Wire | None = first
        self._lock = threading.Lock()
        self._ends: set[socket.socket | Wire] = set()
        self._closed = False

    def accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), name="grpc-way-end", daemon=True).start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for end in self._ends:
                _end(end)

    def _carry(self, near: socket.socket) -> None:
        with near:
            try:
                far = self._take_first() or self._dialer.dial(*self._target, _DIAL_TIMEOUT_S)
            except HiveFederationError as error:
                log.warning("a connection is closed: %s", error)
                return
            with self._kept(near, far):
                back = threading.Thread(target=_pump, args=(far, near), daemon=True)
                back.start()
                _pump(near, far)
                back.join()

    def _take_first(self) -> Wire | None:
        with self._lock:
            first, self._first = self._first, None
            return first

    @contextmanager
    def _kept(self, near: socket.socket, far: Wire) -> Iterator[None]:
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


def _pump(source: socket.socket | Wire, target: socket.socket | Wire) -> None:
    """Forward bytes until either end is closed, and close both."""
    with suppress(OSError, EOFError):
        source.settimeout(None)
        while data := source.recv(_CHUNK_BYTES):
            while data:
                data = data[target.send(data) :]
    _end(source)
    _end(target)


def _end(connection: socket.socket | Wire) -> None:
    if not isinstance(connection, socket.socket):
        connection.close()
        return
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)

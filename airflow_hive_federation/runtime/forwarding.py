"""Forwards the connections of a local listener to a far server, each by two threads."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Protocol

from airflow_hive_federation.errors import HiveFederationError

log = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 16


class FarEnd(Protocol):
    """A connection to the far server."""

    def settimeout(self, seconds: float | None) -> None: ...

    def send(self, data: bytes | memoryview) -> int: ...

    def recv(self, size: int) -> bytes: ...

    def close(self) -> None: ...


@contextmanager
def forwarding(listener: socket.socket, dial: Callable[[], FarEnd]) -> Iterator[None]:
    """Forward each connection of a listener while the block runs, and end the connections after it.

    :param dial: connects to the far server; after an error, which is logged, the near end is closed.
    """
    forwarder = _Forwarder(dial)
    thread = threading.Thread(target=forwarder.accept, args=(listener,), name="forwarding", daemon=True)
    with ExitStack() as stack:
        stack.callback(thread.join)
        stack.callback(forwarder.close)
        # The shutdown makes accept() return, which ends the loop.
        stack.callback(listener.shutdown, socket.SHUT_RDWR)
        thread.start()
        yield


class _Forwarder:
    def __init__(self, dial: Callable[[], FarEnd]) -> None:
        self._dial = dial
        self._lock = threading.Lock()
        self._ends: set[socket.socket | FarEnd] = set()
        self._closed = False

    def accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), name="forwarded", daemon=True).start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for end in self._ends:
                _end(end)

    def _carry(self, near: socket.socket) -> None:
        with near:
            try:
                far = self._dial()
            except HiveFederationError as error:
                # The program at the near end only sees that its connection is closed.
                log.warning("A connection is closed: %s", error)
                return
            if near.family != socket.AF_UNIX:
                near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._kept(near, far):
                back = threading.Thread(target=_pump, args=(far, near), daemon=True)
                back.start()
                _pump(near, far)
                back.join()

    @contextmanager
    def _kept(self, near: socket.socket, far: FarEnd) -> Iterator[None]:
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


def _pump(source: socket.socket | FarEnd, target: socket.socket | FarEnd) -> None:
    """Forward bytes until either end is closed, and close both: Thrift never closes one direction only."""
    with suppress(OSError, EOFError):
        source.settimeout(None)
        while data := source.recv(_CHUNK_BYTES):
            while data:
                data = data[target.send(data) :]
    _end(source)
    _end(target)


def _end(connection: socket.socket | FarEnd) -> None:
    if not isinstance(connection, socket.socket):
        connection.close()
        return
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)

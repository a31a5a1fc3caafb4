"""Encrypts a connection that is no socket of this machine, an SSH channel for instance, by TLS."""

from __future__ import annotations

import contextlib
import ssl
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from airflow_hive_federation.metastore.channel import Deadline
    from airflow_hive_federation.metastore.settings import Wire

_CHUNK = 1 << 16


class TlsWire:
    """A wire over which TLS runs; the server's certificate has to name the host.

    :param wire: new connection to the server, on which no bytes were sent yet.
    :param host: the host's name at the end of the route.
    :raises ssl.SSLError: if the handshake fails.
    :raises OSError: if the server does not answer within the deadline.
    """

    def __init__(self, wire: Wire, context: ssl.SSLContext, host: str, deadline: Deadline) -> None:
        self._wire = wire
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._timeout_s: float | None = None
        try:
            self._shake_hands(deadline)
        except TimeoutError as error:
            raise deadline.passed() from error

    def settimeout(self, seconds: float | None) -> None:
        """See :meth:`.Wire.settimeout`."""
        self._timeout_s = seconds
        self._wire.settimeout(seconds)

    def send(self, data: bytes | memoryview) -> int:
        """See :meth:`.Wire.send`."""
        sent = self._tls.write(data[:_CHUNK])
        self._flush(self._end())
        return sent

    def recv(self, size: int) -> bytes:
        """See :meth:`.Wire.recv`."""
        end = self._end()
        while True:
            try:
                return self._tls.read(size)
            except ssl.SSLWantReadError:
                self._exchange(end)
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    def recv_into(self, buffer: WriteableBuffer) -> int:
        """See :meth:`.Wire.recv_into`."""
        data = self.recv(memoryview(buffer).nbytes)
        memoryview(buffer)[: len(data)] = data
        return len(data)

    def has_input(self) -> bool:
        """See :meth:`.Wire.has_input`."""
        return bool(self._tls.pending()) or bool(self._incoming.pending) or self._wire.has_input()

    def close(self) -> None:
        """See :meth:`.Wire.close`."""
        self._wire.close()

    def _shake_hands(self, deadline: Deadline) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._wire.settimeout(deadline.remaining_s())
                self._exchange(None)
            except ssl.SSLError:
                # The server learns the reason, as from a socket, if it still listens.
                with contextlib.suppress(OSError):
                    self._wire.settimeout(deadline.remaining_s())
                    self._flush(None)
                raise
            else:
                self._wire.settimeout(deadline.remaining_s())
                self._flush(None)
                return

    def _end(self) -> float | None:
        return None if self._timeout_s is None else time.monotonic() + self._timeout_s

    def _exchange(self, end: float | None) -> None:
        """Send what TLS has to send, and receive some bytes or the end."""
        self._flush(end)
        self._limit(end)
        if data := self._wire.recv(_CHUNK):
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def _flush(self, end: float | None) -> None:
        rest = memoryview(self._outgoing.read())
        while rest:
            self._limit(end)
            rest = rest[self._wire.send(rest) :]

    def _limit(self, end: float | None) -> None:
        if end is None:
            return
        if (left_s := end - time.monotonic()) <= 0:
            raise TimeoutError("the time is over")
        self._wire.settimeout(left_s)

"""Serves the metastore's own Thrift protocol on a port, for Hive, Spark, Trino and old clients."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import ssl
import threading
import time

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.certificates import Certificates, check_exposure, is_loopback
from airflow_hive_federation.gateway.handler import Handler
from airflow_hive_federation.gateway.hangups import Hangups
from airflow_hive_federation.gateway.thrift_connection import Gone, ThriftConnection
from airflow_hive_federation.gateway.thrift_settings import ThriftSettings

log = logging.getLogger(__name__)

#: Clients that may wait to be accepted; the kernel lowers it to ``net.core.somaxconn``. Beyond it, the kernel
#: drops the packets that open a connection, and clients repeat them only after 1, 3, 7… seconds.
_BACKLOG = 4096
_OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ThriftFront:
    """A Thrift server with one thread per connection; a waiting thread costs no more than its memory.

    :raises ConfigurationError: the front would serve in plain text off loopback, the certificates cannot be
        used, or the port is taken.
    """

    def __init__(self, handler: Handler, settings: ThriftSettings) -> None:
        check_exposure(settings.host, settings.tls, allow_plain=settings.allow_plain)
        self.settings = settings
        self._handler = handler
        self._certificates = None if settings.tls is None else Certificates(settings.tls)
        self._lock = threading.Condition()
        self._connections: set[ThriftConnection] = set()
        self._stopping = False
        self.refused = 0
        self._listener = _listen(settings)
        self._hangups = Hangups()
        self._thread = threading.Thread(target=self._accept, name="thrift-front", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port at which the front listens."""
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    @property
    def uri(self) -> str:
        """The URI for clients."""
        host, port = self.address
        scheme = "thrift" if self._certificates is None else "thrift+tls"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def connections(self) -> int:
        """Number of connected clients."""
        return len(self._connections)

    def start(self) -> ThriftFront:
        """Start to serve in threads of the front's own; return the front."""
        self._thread.start()
        return self

    def stop(self, drain_timeout_s: float | None = None) -> bool:
        """Accept no more clients, wait for running calls, and close; return whether all calls had ended.

        :param drain_timeout_s: seconds that running calls have to end; ``None`` takes the setting.
        """
        with self._lock:
            self._stopping = True
            connections = list(self._connections)
        with contextlib.suppress(OSError):
            # Wakes the thread that is blocked in ``accept``.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in connections:
            connection.drain()
        patience = self.settings.drain_timeout_s if drain_timeout_s is None else drain_timeout_s
        with self._lock:
            drained = self._lock.wait_for(lambda: not self._connections, timeout=patience)
            remaining = list(self._connections)
        for connection in remaining:
            connection.interrupt()
        # Closed after the interrupts, so that the calls of the interrupted connections are cancelled.
        self._hangups.close()
        if self._thread.is_alive():
            self._thread.join(5)
        return drained

    def _accept(self) -> None:
        while not self._stopping:
            try:
                sock, peer = self._listener.accept()
            except OSError as error:
                if error.errno in _OUT_OF_FILES and not self._stopping:
                    log.warning("the Thrift front takes no client: %s", error)
                    time.sleep(0.05)
                    continue
                return
            self._take(sock, str(peer[0]))

    def _take(self, sock: socket.socket, peer: str) -> None:
        with self._lock:
            full = len(self._connections) >= self.settings.max_connections
            if full or self._stopping:
                self.refused += 1
                sock.close()
                if self.refused & (self.refused - 1) == 0:
                    # Log at 1, 2, 4, 8… refusals, so that a flood of clients does not flood the log.
                    log.warning(
                        "%s connections were refused: %s are open", self.refused, len(self._connections)
                    )
                return
            connection = ThriftConnection(
                self._handler,
                self.settings,
                sock,
                peer,
                believed=self._believes(peer),
                hangups=self._hangups,
            )
            self._connections.add(connection)
        try:
            threading.Thread(
                target=self._serve, args=(connection,), name="thrift-client", daemon=True
            ).start()
        except RuntimeError as error:
            log.warning("a connection was refused: %s", error)
            self._forget(connection)

    def _believes(self, peer: str) -> bool:
        return self.settings.believe_set_ugi or is_loopback(peer)

    def _serve(self, connection: ThriftConnection) -> None:
        try:
            context = None if self._certificates is None else self._certificates.context()
            connection.serve(context)
        except (OSError, ssl.SSLError, Gone) as error:
            log.debug("connection from %s ended: %s", connection.peer, error)
        finally:
            self._forget(connection)

    def _forget(self, connection: ThriftConnection) -> None:
        connection.close()
        with self._lock:
            self._connections.discard(connection)
            self._lock.notify_all()


def _listen(settings: ThriftSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server(
            (settings.host, settings.port), family=family, backlog=_BACKLOG, reuse_port=settings.reuse_port
        )
    except OSError as error:
        raise ConfigurationError(
            f"The gateway cannot listen at {settings.host}:{settings.port}: {error}",
            remedy="Give an address of this machine and a free port.",
        ) from error

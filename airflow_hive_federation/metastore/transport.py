"""Opens channels to metastores, and carries requests and answers over TCP, TLS or HTTP."""

from __future__ import annotations

import contextlib
import http.client
import io
import select
import socket
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_hive_federation.metastore.channel import (
    BOUND,
    Channel,
    Deadline,
    ForeignProtocol,
    NotSent,
)
from airflow_hive_federation.metastore.settings import Endpoint, MetastoreSettings, TlsSettings, Wire
from airflow_hive_federation.metastore.tls_wire import TlsWire
from airflow_hive_federation.metastore.trace_context import current_trace

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


USER_HEADER = (
    "x-actor-username"  # org.apache.hadoop.hive.metastore.utils.MetaStoreUtils.USER_NAME_HTTP_HEADER
)

_MEDIA_TYPE = "application/x-thrift"


def open_channel(endpoint: Endpoint, settings: MetastoreSettings, deadline: Deadline) -> Channel:
    """Connect to one server.

    :raises OSError: if no server answers, or TLS fails (:class:`ssl.SSLError`).
    :raises HiveFederationError: if the route to the server, a tunnel for instance, fails.
    """
    if endpoint.is_grpc:
        # Imported here, because the module imports grpcio, which is an optional dependency.
        from airflow_hive_federation.metastore.grpc_channel import GrpcChannel

        return GrpcChannel(endpoint, settings)
    sock: socket.socket | Wire
    if settings.dialer is not None:
        sock = settings.dialer.dial(endpoint.host, endpoint.port, deadline.remaining_s())
        if (tls := _tls_of(endpoint, settings.tls)) is not None:
            sock = _wrapped(sock, endpoint, tls, deadline)
    else:
        sock = _connect(endpoint, settings.tls, deadline)
    if endpoint.is_http:
        headers = {USER_HEADER: settings.effective_user(), **settings.http_headers}
        return HttpChannel(sock, endpoint, headers, settings.max_answer_bytes)
    return SocketChannel(sock)


class SocketChannel:
    """A channel that sends Thrift directly over a TCP or TLS connection."""

    needs_greeting = True

    def __init__(self, sock: socket.socket | Wire) -> None:
        self._sock = sock

    def send(self, request: bytes | bytearray, deadline: Deadline) -> None:
        """See :meth:`Channel.send`."""
        try:
            _send_all(self._sock, request, deadline)
        except ConnectionError as error:
            raise NotSent(*error.args) from error

    def receive(self, size: int, deadline: Deadline) -> bytes:
        """See :meth:`Channel.receive`."""
        return _receive(self._sock, size, deadline)

    def has_more(self) -> bool:
        """See :meth:`Channel.has_more`; :meth:`is_stale` detects bytes that are left in the socket."""
        return False

    def is_stale(self) -> bool:
        """See :meth:`Channel.is_stale`."""
        return _readable(self._sock)

    def interrupt(self) -> None:
        """End the wait of another thread, after which the connection is unusable; never fails."""
        _interrupt(self._sock)

    def close(self) -> None:
        """See :meth:`Channel.close`."""
        self._sock.close()


class HttpChannel(SocketChannel):
    """A channel that sends Thrift in HTTP bodies (Hive's ``metastore.server.thrift.transport.mode=http``)."""

    needs_greeting = False

    def __init__(
        self,
        sock: socket.socket | Wire,
        endpoint: Endpoint,
        headers: Mapping[str, str],
        max_answer_bytes: int,
    ) -> None:
        super().__init__(sock)
        self._endpoint = endpoint
        self._max_answer_bytes = max_answer_bytes
        self._headers = headers
        self._body = io.BytesIO()

    def send(self, request: bytes | bytearray, deadline: Deadline) -> None:
        """See :meth:`Channel.send`."""
        writer = http.client.HTTPConnection(self._endpoint.host, self._endpoint.port)
        writer.sock = message = _Request()
        trace = dict(current_trace())
        headers = {"Content-Type": _MEDIA_TYPE, "Accept": _MEDIA_TYPE, **self._headers, **trace}
        writer.request("POST", self._endpoint.path, body=request, headers=headers)
        super().send(message, deadline)
        self._body = io.BytesIO()

    def receive(self, size: int, deadline: Deadline) -> bytes:
        """See :meth:`Channel.receive`."""
        if not (data := self._body.read(size)):
            self._body = io.BytesIO(self._read_answer(deadline))
            data = self._body.read(size)
        return data

    def has_more(self) -> bool:
        """See :meth:`Channel.has_more`."""
        return bool(self._body.read(1))

    def _read_answer(self, deadline: Deadline) -> bytes:
        file = _DeadlineFile(self._sock, deadline)
        answer = http.client.HTTPResponse(file)  # type: ignore[arg-type]
        try:
            answer.begin()
            body = answer.read(self._max_answer_bytes + 1)
        except http.client.RemoteDisconnected as error:
            raise ConnectionResetError(str(error)) from error
        except http.client.HTTPException as error:
            raise ForeignProtocol(f"no HTTP answer: {error!r}") from error
        finally:
            # Since Python 3.13, an answer that is not closed complains when its file is collected first.
            answer.close()
        if len(body) > self._max_answer_bytes:
            raise ForeignProtocol(f"its answer is longer than {self._max_answer_bytes} bytes ({BOUND})")
        if answer.status != http.HTTPStatus.OK or not body:
            raise ForeignProtocol(f"HTTP {answer.status} {answer.reason} for {self._endpoint.path}")
        if file.has_more:
            raise ForeignProtocol("something follows the answer")
        return body


class _Request(bytearray):
    """Collects the request that http.client writes: its head and body then leave in one segment."""

    sendall = bytearray.extend


class _DeadlineFile(io.RawIOBase):
    """A file by which http.client reads an answer from a socket, with each wait limited by a deadline."""

    def __init__(self, sock: socket.socket | Wire, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline
        self._ended = False
        #: ``True`` if bytes follow the answer.
        self.has_more = False

    def makefile(self, _mode: str) -> io.BufferedReader:
        return _Reader(self)

    def readable(self) -> bool:
        return True

    def end(self, reader: io.BufferedReader) -> None:
        """Check, after the answer was read, whether the reader has buffered more bytes."""
        self._ended = True
        self.has_more = bool(reader.peek(1))

    def readinto(self, buffer: WriteableBuffer) -> int:
        if self._ended:
            return 0
        self._sock.settimeout(self._deadline.remaining_s())
        try:
            return self._sock.recv_into(buffer)
        except TimeoutError as error:
            raise self._deadline.passed() from error


class _Reader(io.BufferedReader):
    """A buffer over a :class:`_DeadlineFile`; http.client closes it after the answer."""

    raw: _DeadlineFile

    def close(self) -> None:
        if not self.closed:
            self.raw.end(self)
        super().close()


def _connect(endpoint: Endpoint, tls: TlsSettings | None, deadline: Deadline) -> socket.socket:
    sock = socket.create_connection((endpoint.host, endpoint.port), timeout=deadline.remaining_s())
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if (files := _tls_of(endpoint, tls)) is not None:
            return _wrap(sock, endpoint, files, deadline)
    except BaseException:
        sock.close()
        raise
    return sock


def _tls_of(endpoint: Endpoint, tls: TlsSettings | None) -> TlsSettings | None:
    """Return the TLS files for a server; ``None`` if the connection does without TLS."""
    if endpoint.is_tls or (tls is not None and not endpoint.is_http):
        return tls or TlsSettings()
    return None


def _wrapped(wire: Wire, endpoint: Endpoint, tls: TlsSettings, deadline: Deadline) -> TlsWire:
    try:
        return TlsWire(wire, tls.context(), endpoint.host, deadline)
    except BaseException:
        wire.close()
        raise


def _wrap(sock: socket.socket, endpoint: Endpoint, tls: TlsSettings, deadline: Deadline) -> ssl.SSLSocket:
    wrapped = tls.context().wrap_socket(sock, server_hostname=endpoint.host, do_handshake_on_connect=False)
    try:
        _shake_hands(wrapped, deadline)
    except BaseException:
        # The plain socket no longer owns the descriptor.
        wrapped.close()
        raise
    return wrapped


def _shake_hands(sock: ssl.SSLSocket, deadline: Deadline) -> None:
    # The socket's own timeout would start anew at every read, so the loop polls within the deadline.
    sock.setblocking(False)
    while True:
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            _wait(sock, deadline, select.POLLIN)
        except ssl.SSLWantWriteError:
            _wait(sock, deadline, select.POLLOUT)
        else:
            return


def _wait(sock: socket.socket, deadline: Deadline, event: int) -> None:
    poll = select.poll()
    poll.register(sock, event)
    poll.poll(deadline.remaining_s() * 1000)


def _send_all(sock: socket.socket | Wire, data: bytes | bytearray, deadline: Deadline) -> None:
    rest = memoryview(data)
    while rest:
        sock.settimeout(deadline.remaining_s())
        try:
            rest = rest[sock.send(rest) :]
        except TimeoutError as error:
            raise deadline.passed() from error


def _receive(sock: socket.socket | Wire, size: int, deadline: Deadline) -> bytes:
    sock.settimeout(deadline.remaining_s())
    try:
        data = sock.recv(size)
    except TimeoutError as error:
        raise deadline.passed() from error
    if not data:
        raise ConnectionResetError("the server closed the connection")
    return data


def _interrupt(sock: socket.socket | Wire) -> None:
    if not isinstance(sock, socket.socket):
        sock.close()
        return
    # close() would not wake a thread that waits for the socket; shutdown() does.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _readable(sock: socket.socket | Wire) -> bool:
    if not isinstance(sock, socket.socket):
        return sock.has_input()
    if sock.fileno() < 0 or (isinstance(sock, ssl.SSLSocket) and sock.pending()):
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))

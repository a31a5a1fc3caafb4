"""Reads the calls of one Thrift client and sends it the handler's answers, with a timeout for every wait."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NoReturn

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.gateway.certificates import is_loopback, subject_of
from airflow_hive_federation.gateway.handler import (
    Call,
    Caller,
    Cancellation,
    Deadline,
    Handler,
    Status,
    refusal,
    refused,
)
from airflow_hive_federation.gateway.hangups import Hangups
from airflow_hive_federation.gateway.messages import CALL, ONEWAY, REPLY, Head, MessageReader, head_bytes
from airflow_hive_federation.gateway.thrift_settings import ThriftSettings
from airflow_hive_federation.gateway.upstream import ClientGone
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.protocol import encode
from airflow_hive_federation.metastore.wire import WireFormatError, from_bytes

log = logging.getLogger(__name__)

_FRAME_HEAD = 4
_VERSION_BIT = 0x80
#: Bytes of the longest ``set_ugi``: each connection keeps its user's name and groups.
LONGEST_GREETING = 64 << 10


class Gone(Exception):  # noqa: N818 - internal signal of the front
    """The client has closed the connection, or the front must close it."""


class ThriftConnection:
    """A client's connection; :meth:`serve` runs in a thread of its own.

    :param believed: trust the user name that ``set_ugi`` carries.
    :param hangups: cancels the running call if the client disconnects.
    """

    def __init__(
        self,
        handler: Handler,
        settings: ThriftSettings,
        sock: socket.socket,
        peer: str,
        *,
        believed: bool,
        hangups: Hangups,
    ) -> None:
        self.peer = peer
        self._hangups = hangups
        self._handler = handler
        self._settings = settings
        self._sock = sock
        self._believed = believed
        self._caller = Caller(peer=peer, remote=not is_loopback(peer))
        self._lock = threading.Lock()
        self._draining = False
        self._busy = False
        self._passed = False
        self._framed = False
        self._deadline = Deadline(settings.handshake_timeout_s)
        self._reader = MessageReader(self._receive, max_bytes=settings.max_request_bytes)
        self._began = False

    def serve(self, context: ssl.SSLContext | None) -> None:
        """Answer calls until the client disconnects, breaks the protocol or stays idle for too long.

        :raises OSError: the connection broke, or a wait timed out.
        :raises Gone: the client disconnected.
        """
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if context is not None:
            self._secure(context)
        while not self._draining:
            self._began = bool(self._reader.pending)
            self._deadline = Deadline(
                self._settings.request_timeout_s if self._began else self._settings.idle_timeout_s
            )
            try:
                head, message = self._message()
            except MalformedMessage as error:
                # A malformed message has no known end, so the connection closes after this answer.
                self._refuse_malformed(error)
                return
            with self._lock:
                self._busy = True
                # A drain has shut down reading on the socket, which would look like a client's disconnection.
                readable = not self._draining
            self._passed = False
            try:
                self._answer(head, message, watched=readable)
            except (OSError, Gone):
                raise
            except Exception as error:  # noqa: BLE001 - the edge: the client gets no text of a defect
                self._end_with_defect(head, error)
            with self._lock:
                self._busy = False

    def _end_with_defect(self, head: Head, error: Exception) -> NoReturn:
        log.error("a call failed for a reason that is no refusal", exc_info=error)
        if not self._passed:
            # The error's text goes to the log only: it may hold details that clients must not see.
            fault = refused(Status.OUTCOME_UNKNOWN, "The gateway failed; its log has the reason.")
            self._send(refusal(head.method, head.sequence_id, fault))
        raise Gone("a call failed") from error

    def drain(self) -> None:
        """Close the connection after the running call, or now if no call is running."""
        with self._lock:
            self._draining = True
            if self._busy:
                return
        self._shutdown(socket.SHUT_RD)

    def interrupt(self) -> None:
        """Shut the connection down while its thread is using it."""
        self._shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; never fails."""
        self._sock.close()

    def _shutdown(self, how: int) -> None:
        try:
            # The TLS socket's own ``shutdown`` would drop its TLS state.
            socket.socket.shutdown(self._sock, how)
        except OSError:
            return

    def _secure(self, context: ssl.SSLContext) -> None:
        self._sock.settimeout(self._settings.handshake_timeout_s)
        secured = context.wrap_socket(self._sock, server_side=True, do_handshake_on_connect=False)
        self._sock = secured
        secured.do_handshake()
        # Python returns only a verified certificate, so only if the front requires one of its clients.
        if user := subject_of(secured.getpeercert()):
            self._caller = replace(self._caller, user=user, authentication="mtls")

    def _receive(self, size: int) -> bytes:
        sock = self._sock
        sock.settimeout(self._deadline.remaining_s())
        data = sock.recv(size)
        if not data:
            raise Gone("closed by the client")
        if not self._began:
            # The call begins with this byte; the deadline stops clients that send theirs too slowly.
            self._began = True
            self._deadline = Deadline(self._settings.request_timeout_s)
        return data

    def _message(self) -> tuple[Head, bytes]:
        reader = self._reader
        first = reader.peek(1)[0]
        # The first byte of an unframed message is of its version, whose first bit is set.
        self._framed = first < _VERSION_BIT
        if not self._framed:
            return reader.message()
        size = int.from_bytes(reader.take(_FRAME_HEAD), "big")
        if size > self._settings.max_request_bytes:
            self._framed = False
            raise MalformedMessage(f"a frame of {size} bytes")
        head, message = reader.message()
        if len(message) != size:
            raise MalformedMessage(f"a frame of {size} bytes holds a message of {len(message)}")
        return head, message

    def _answer(self, head: Head, message: bytes, *, watched: bool) -> None:
        if head.kind == ONEWAY:
            # Only fb303's ``shutdown`` is oneway; the client waits for no answer.
            return
        if head.kind != CALL:
            raise Gone(f"it sent a message of kind {head.kind}")
        if head.method == "set_ugi":
            self._send(self._greet(head, message))
            return
        cancellation = Cancellation()
        call = Call(head.method, message, self._caller, Deadline(self._settings.call_timeout_s), cancellation)
        with self._hangups.watching(self._sock, cancellation) if watched else nullcontext():
            if self._framed:
                self._send(self._handler.answer(call))
            else:
                self._relay(call, head.sequence_id)

    def _relay(self, call: Call, sequence_id: int) -> None:
        try:
            self._handler.relay(call, lambda piece: self._send(piece, call.deadline))
        except HiveFederationError as error:
            if self._passed:
                raise Gone(f"half an answer was sent: {error}") from error
            self._send(refusal(call.method, sequence_id, error))
        except ClientGone as error:
            raise Gone(str(error)) from error

    def _greet(self, head: Head, message: bytes) -> bytes:
        """Answer ``set_ugi`` as ``HMSHandler.set_ugi`` does: the groups first, then the user."""
        arguments, result, _ = message_types("set_ugi")
        if len(message) > LONGEST_GREETING:
            fault = refused(
                Status.INVALID,
                f"set_ugi: the user's name and groups have {len(message)} bytes, and the gateway reads "
                f"{LONGEST_GREETING}.",
                remedy="Send fewer groups.",
            )
            return refusal("set_ugi", head.sequence_id, fault)
        try:
            ugi: Any = from_bytes(arguments, message[head.body :])
        except WireFormatError as error:
            return refusal("set_ugi", head.sequence_id, refused(Status.INVALID, str(error)))
        user, groups = str(ugi.user_name or ""), tuple(map(str, ugi.group_names or ()))
        if self._believed and self._caller.authentication in {"none", "asserted"}:
            self._caller = replace(self._caller, user=user, authentication="asserted", groups=groups)
        answer = encode(result(success=[*groups, user]))
        return head_bytes("set_ugi", REPLY, head.sequence_id) + answer

    def _refuse_malformed(self, error: MalformedMessage) -> None:
        fault = refused(Status.INVALID, f"This is no message of Hive's metastore: {error}.")
        self._send(refusal("", 0, fault))

    def _send(self, data: bytes, deadline: Deadline | None = None) -> None:
        self._passed = True
        if self._framed:
            data = len(data).to_bytes(_FRAME_HEAD, "big") + data
        patience = self._settings.write_timeout_s
        self._sock.settimeout(patience if deadline is None else min(patience, deadline.remaining_s()))
        self._sock.sendall(data)

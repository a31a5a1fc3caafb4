"""Authenticates a channel by SASL, in the form of Thrift's ``TSaslTransport``.

The client proves its identity by Kerberos, a delegation token or a password. A negotiation of messages (a
status, a length, bytes) is followed by frames (a length, bytes), which the mechanism signs or encrypts if
both sides agreed to do so.
"""

from __future__ import annotations

import io
import struct
from enum import IntEnum
from typing import Protocol

from airflow_hive_federation.errors import MetastoreAuthenticationError
from airflow_hive_federation.metastore.channel import Channel, Deadline, ForeignProtocol, NotSent
from airflow_hive_federation.metastore.sasl_digest import Digest
from airflow_hive_federation.metastore.sasl_kerberos import Kerberos
from airflow_hive_federation.metastore.settings import (
    Authentication,
    DelegationTokenSettings,
    Endpoint,
    KerberosSettings,
    MetastoreSettings,
    PlainSettings,
)

_MESSAGE = struct.Struct("!BI")
_LENGTH = struct.Struct("!I")
#: Bytes of a message in the negotiation, before either side is authenticated. Tickets of users in hundreds of
#: groups take 64 kB; Hive itself accepts 100 MB (``TSaslTransport.MAX_MESSAGE_SIZE``).
_LONGEST_MESSAGE = 1 << 20
#: Messages that the server may send in a negotiation; Kerberos takes three.
_MOST_MESSAGES = 32
#: Characters of a refusal that the error repeats.
_SHOWN_CHARACTERS = 500


class _Status(IntEnum):
    """The status of a negotiation's message (``TSaslTransport.NegotiationStatus``)."""

    START = 1
    OK = 2
    BAD = 3
    ERROR = 4
    COMPLETE = 5


class Mechanism(Protocol):
    """The client's side of a SASL mechanism."""

    name: str
    #: ``True`` if the client has no more messages to send.
    complete: bool

    def step(self, challenge: bytes, deadline: Deadline) -> bytes:
        """Return the answer to a challenge; the first challenge is empty.

        :raises MetastoreAuthenticationError: if the mechanism cannot answer it.
        :raises OSError: if a third party that it needs, such as a KDC, does not answer within the deadline.
        """

    def finish(self, payload: bytes) -> None:
        """Check the bytes that come with the server's last message.

        :raises MetastoreAuthenticationError: if they do not prove the server's identity.
        """

    def shown(self, text: str) -> str:
        """Hide the client's secrets in a text of the server."""

    def wrap(self, data: bytes) -> list[bytes]:
        """Divide bytes into frames.

        :raises ValueError: if the mechanism's keys have expired, so that another negotiation is needed.
        """

    def unwrap(self, frame: bytes) -> bytes:
        """Return the bytes in a frame.

        :raises ValueError: if the frame was changed on the way from the server.
        """


class SaslChannel:
    """A channel that sends Thrift in SASL's frames, after both sides have authenticated.

    :param channel: new channel to the server, on which no bytes were sent yet.
    :raises MetastoreAuthenticationError: if the server rejects our credentials, or the client has none.
    :raises ForeignProtocol: if the server does not support SASL.
    :raises OSError: if the server does not answer.
    """

    #: The server knows the user from the mechanism: ``HiveMetaStoreClient.open`` calls no ``set_ugi`` either.
    needs_greeting = False

    def __init__(
        self,
        channel: Channel,
        endpoint: Endpoint,
        settings: MetastoreSettings,
        deadline: Deadline,
    ) -> None:
        authentication = settings.authentication
        if authentication is None:
            raise ValueError("SASL needs an authentication")
        self._channel = channel
        self._endpoint = endpoint
        # Encryption adds some bytes to a frame.
        self._longest_frame = settings.max_answer_bytes + _LONGEST_MESSAGE
        self._mechanism = _mechanism(authentication, endpoint)
        self._answer = io.BytesIO()
        try:
            self._negotiate(deadline)
        except ConnectionError as error:
            raise ForeignProtocol("it closed the connection when authentication (SASL) began") from error

    def send(self, request: bytes, deadline: Deadline) -> None:
        """See :meth:`Channel.send`."""
        try:
            frames = self._mechanism.wrap(request)
        except ValueError as error:
            raise NotSent(str(error)) from error
        self._channel.send(b"".join(_LENGTH.pack(len(frame)) + frame for frame in frames), deadline)
        self._answer = io.BytesIO()

    def receive(self, size: int, deadline: Deadline) -> bytes:
        """See :meth:`Channel.receive`."""
        while not (data := self._answer.read(size)):
            (length,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline))
            if length > self._longest_frame:
                raise ForeignProtocol(f"a frame of {length} bytes")
            frame = self._read(length, deadline)
            try:
                self._answer = io.BytesIO(self._mechanism.unwrap(frame))
            except ValueError as error:
                raise ForeignProtocol(str(error)) from error
        return data

    def has_more(self) -> bool:
        """See :meth:`Channel.has_more`."""
        return bool(self._answer.read(1))

    def is_stale(self) -> bool:
        """See :meth:`Channel.is_stale`."""
        return self._channel.is_stale()

    def interrupt(self) -> None:
        """End the wait of another thread; see :meth:`SocketChannel.interrupt`."""
        getattr(self._channel, "interrupt", self._channel.close)()

    def close(self) -> None:
        """See :meth:`Channel.close`."""
        self._channel.close()

    def _negotiate(self, deadline: Deadline) -> None:
        mechanism = self._mechanism
        self._received = 0
        first = mechanism.step(b"", deadline)
        self._send_message(_Status.START, mechanism.name.encode(), deadline)
        self._send_message(self._done(), first, deadline)
        status, challenge = _Status.OK, b""
        while not mechanism.complete:
            status, challenge = self._receive_message(deadline)
            if status is _Status.COMPLETE:
                raise ForeignProtocol("the server ended the authentication before it had proved its identity")
            self._send_message(self._done(), mechanism.step(challenge, deadline), deadline)
        while status is not _Status.COMPLETE:
            status, challenge = self._receive_message(deadline)
        mechanism.finish(challenge)

    def _done(self) -> _Status:
        return _Status.COMPLETE if self._mechanism.complete else _Status.OK

    def _send_message(self, status: _Status, payload: bytes, deadline: Deadline) -> None:
        self._channel.send(_MESSAGE.pack(status, len(payload)) + payload, deadline)

    def _receive_message(self, deadline: Deadline) -> tuple[_Status, bytes]:
        number, length = _MESSAGE.unpack(self._read(_MESSAGE.size, deadline))
        if number not in set(_Status) or length > _LONGEST_MESSAGE:
            raise ForeignProtocol("its answer is not SASL")
        self._received += 1
        if self._received > _MOST_MESSAGES:
            raise ForeignProtocol(f"its authentication takes more than {_MOST_MESSAGES} messages")
        status, payload = _Status(number), self._read(length, deadline)
        if status in {_Status.BAD, _Status.ERROR}:
            raise MetastoreAuthenticationError(
                f"{self._endpoint} refuses {self._mechanism.name} authentication: {self._shown(payload)}",
                remedy="Check the user and password, the principals and the keytab, or that the delegation "
                "token is still valid; the server's log has more.",
                uri=str(self._endpoint),
            )
        return status, payload

    def _shown(self, payload: bytes) -> str:
        """Turn a server's text, which may hold anything, even its client's secret, into one line of a log."""
        text = self._mechanism.shown(payload.decode(errors="replace"))
        shown = "".join(
            character if character.isprintable() else " " for character in text[:_SHOWN_CHARACTERS]
        )
        return shown if len(text) <= _SHOWN_CHARACTERS else f"{shown}…"

    def _read(self, size: int, deadline: Deadline) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            parts += self._channel.receive(size - len(parts), deadline)
        return bytes(parts)


class _Plain:
    """The SASL mechanism PLAIN (RFC 4616): user and password, which Hive takes for LDAP, PAM and CUSTOM."""

    name = "PLAIN"
    complete = False

    def __init__(self, settings: PlainSettings) -> None:
        self._settings = settings

    def step(self, challenge: bytes, deadline: Deadline) -> bytes:  # noqa: ARG002 - always the same answer
        self.complete = True
        return b"\0".join([b"", self._settings.user.encode(), self._settings.password.encode()])

    def finish(self, payload: bytes) -> None:
        pass

    def shown(self, text: str) -> str:
        return text.replace(self._settings.password, "***") if self._settings.password else text

    def wrap(self, data: bytes) -> list[bytes]:
        return [data]

    def unwrap(self, frame: bytes) -> bytes:
        return frame


def _mechanism(authentication: Authentication, endpoint: Endpoint) -> Mechanism:
    if isinstance(authentication, KerberosSettings):
        return Kerberos(authentication, endpoint)
    if isinstance(authentication, DelegationTokenSettings):
        return Digest(authentication, endpoint)
    return _Plain(authentication)

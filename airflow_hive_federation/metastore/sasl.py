"""Authenticates a channel by SASL, with Kerberos or a password, in the form of Thrift's ``TSaslTransport``.

A negotiation of messages (a status, a length, bytes) is followed by frames (a length, bytes), which the
mechanism signs or encrypts if both sides agreed to do so.
"""

from __future__ import annotations

import importlib
import io
import struct
from enum import IntEnum
from typing import Any, NoReturn, Protocol

from airflow_hive_federation.errors import ConfigurationError, MetastoreAuthenticationError
from airflow_hive_federation.metastore.settings import (
    Endpoint,
    KerberosSettings,
    MetastoreSettings,
    PlainSettings,
)
from airflow_hive_federation.metastore.transport import Channel, Deadline, ForeignProtocol

_MESSAGE = struct.Struct("!BI")
_LENGTH = struct.Struct("!I")
#: Bytes of a message in the negotiation, before either side is authenticated. Tickets of users in hundreds of
#: groups take 64 kB; Hive itself accepts 100 MB (``TSaslTransport.MAX_MESSAGE_SIZE``).
_LONGEST_MESSAGE = 1 << 20
#: Messages that the server may send in a negotiation; Kerberos takes three.
_MOST_MESSAGES = 32
#: Characters of a refusal that the error repeats.
_SHOWN_CHARACTERS = 500
#: Maximum bytes to wrap in one frame; the server may require less.
_PIECE = 1 << 20


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

    def step(self, challenge: bytes) -> bytes:
        """Return the answer to a challenge; the first challenge is empty.

        :raises MetastoreAuthenticationError: if the mechanism cannot answer it.
        """

    def shown(self, text: str) -> str:
        """Hide the client's secrets in a text of the server."""

    def wrap(self, data: bytes) -> list[bytes]:
        """Divide bytes into frames."""

    def unwrap(self, frame: bytes) -> bytes:
        """Return the bytes in a frame.

        :raises MetastoreAuthenticationError: if the frame was changed on the way from the server.
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
        self._mechanism: Mechanism = (
            _Kerberos(authentication, endpoint)
            if isinstance(authentication, KerberosSettings)
            else _Plain(authentication)
        )
        self._answer = io.BytesIO()
        try:
            self._negotiate(deadline)
        except ConnectionError as error:
            raise ForeignProtocol("it closed the connection when authentication (SASL) began") from error

    def send(self, request: bytes, deadline: Deadline) -> None:
        """See :meth:`Channel.send`."""
        frames = self._mechanism.wrap(request)
        self._channel.send(b"".join(_LENGTH.pack(len(frame)) + frame for frame in frames), deadline)
        self._answer = io.BytesIO()

    def receive(self, size: int, deadline: Deadline) -> bytes:
        """See :meth:`Channel.receive`."""
        while not (data := self._answer.read(size)):
            (length,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline))
            if length > self._longest_frame:
                raise ForeignProtocol(f"a frame of {length} bytes")
            self._answer = io.BytesIO(self._mechanism.unwrap(self._read(length, deadline)))
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
        first = mechanism.step(b"")
        self._send_message(_Status.START, mechanism.name.encode(), deadline)
        self._send_message(self._done(), first, deadline)
        status = _Status.OK
        while not mechanism.complete:
            status, challenge = self._receive_message(deadline)
            if status is _Status.COMPLETE:
                raise ForeignProtocol("the server ended the authentication before it had proved its identity")
            self._send_message(self._done(), mechanism.step(challenge), deadline)
        while status is not _Status.COMPLETE:
            status, _ = self._receive_message(deadline)

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
                remedy="Check the user and password, or the principals and the keytab; the server's log has "
                "more.",
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

    def step(self, challenge: bytes) -> bytes:  # noqa: ARG002 - every challenge has the same answer
        self.complete = True
        return b"\0".join([b"", self._settings.user.encode(), self._settings.password.encode()])

    def shown(self, text: str) -> str:
        return text.replace(self._settings.password, "***") if self._settings.password else text

    def wrap(self, data: bytes) -> list[bytes]:
        return [data]

    def unwrap(self, frame: bytes) -> bytes:
        return frame


class _Kerberos:
    """The SASL mechanism GSSAPI (Kerberos, RFC 4752), with the strongest protection that the server offers.

    Servers offer the protection that ``hadoop.rpc.protection`` sets: authentication alone, integrity, or
    privacy.
    """

    name = "GSSAPI"
    complete = False
    _NOTHING, _INTEGRITY, _PRIVACY = 1, 2, 4

    def __init__(self, settings: KerberosSettings, endpoint: Endpoint) -> None:
        try:
            gssapi: Any = importlib.import_module("gssapi")
        except ImportError as error:
            raise ConfigurationError(
                "Kerberos needs the package gssapi.",
                remedy="pip install 'airflow-hive-federation[kerberos]'; it is built against Kerberos' "
                "headers (Debian: libkrb5-dev, Red Hat: krb5-devel).",
            ) from error
        self._errors: type[Exception] = gssapi.exceptions.GSSError
        self._endpoint = endpoint
        self._server = settings.server_of(endpoint.host)
        self._layer = self._NOTHING
        self._piece = _PIECE
        try:
            self._context = gssapi.SecurityContext(
                name=gssapi.Name(self._server, gssapi.NameType.kerberos_principal),
                creds=_credentials(gssapi, settings),
                mech=gssapi.MechType.kerberos,
                flags=(
                    gssapi.RequirementFlag.mutual_authentication,
                    gssapi.RequirementFlag.integrity,
                    gssapi.RequirementFlag.confidentiality,
                    gssapi.RequirementFlag.replay_detection,
                    gssapi.RequirementFlag.out_of_sequence_detection,
                ),
                usage="initiate",
            )
        except self._errors as error:
            self._fail(error)

    def step(self, challenge: bytes) -> bytes:
        try:
            if not self._context.complete:
                return bytes(self._context.step(challenge or None) or b"")
            return self._agreed(self._context.unwrap(challenge).message)
        except self._errors as error:
            self._fail(error)

    def shown(self, text: str) -> str:
        return text

    def wrap(self, data: bytes) -> list[bytes]:
        if self._layer == self._NOTHING:
            return [data]
        pieces = [data[first : first + self._piece] for first in range(0, len(data), self._piece)]
        return [self._context.wrap(piece, self._layer == self._PRIVACY).message for piece in pieces]

    def unwrap(self, frame: bytes) -> bytes:
        if self._layer == self._NOTHING:
            return frame
        try:
            message = self._context.unwrap(frame)
        except self._errors as error:
            self._fail(error)
        return bytes(message.message)

    def _agreed(self, offer: bytes) -> bytes:
        if len(offer) != 4:
            raise ForeignProtocol("its offer of protection is not four bytes (RFC 4752)")
        layers = [layer for layer in (self._PRIVACY, self._INTEGRITY, self._NOTHING) if offer[0] & layer]
        if not layers:
            raise ForeignProtocol(f"it offers no protection that is known ({offer[0]})")
        self._layer = layers[0]
        longest = b"\0\0\0"
        if self._layer != self._NOTHING:
            theirs = int.from_bytes(offer[1:], "big")
            self._piece = min(_PIECE, self._context.get_wrap_size_limit(theirs, self._layer == self._PRIVACY))
            longest = b"\xff\xff\xff"
        self.complete = True
        return bytes(self._context.wrap(bytes([self._layer]) + longest, False).message)

    def _fail(self, error: Exception) -> NoReturn:
        raise MetastoreAuthenticationError(
            f"Kerberos to {self._server} at {self._endpoint}: {error}",
            remedy="Check the server's principal, the keytab or ticket (klist), and the clocks; KRB5_TRACE="
            "/dev/stderr prints every step.",
            uri=str(self._endpoint),
            principal=self._server,
        ) from error


def _credentials(gssapi: Any, settings: KerberosSettings) -> Any:
    """Return the client's credentials: from the keytab, or the tickets that ``kinit`` obtained."""
    principal = settings.client_principal
    name = None if principal is None else gssapi.Name(principal, gssapi.NameType.kerberos_principal)
    if settings.keytab is None:
        return None if name is None else gssapi.Credentials(name=name, usage="initiate")
    # The connections of this process share the tickets, and renew them from the keytab.
    store = {"client_keytab": settings.keytab, "ccache": f"MEMORY:{settings.keytab}:{principal or ''}"}
    return gssapi.Credentials(name=name, usage="initiate", store=store)

"""Sends Thrift calls to a gRPC gateway, as messages of one long stream on a connection per client.

Calls with long answers are gRPC calls of their own, whose answers come in pieces. So are all calls if the
gateway, or this grpcio, has no such streams, or the gateway has no room for another one.

The errors are those of the other channels, so that the client handles all channels alike. The channel raises
:class:`.NotSent` only if the gateway refused the call before it read it, or reports that the metastore is
unavailable; after any other error the outcome of a write is unknown.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import re
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

try:
    import grpc
    import grpc.experimental  # ``import grpc`` alone does not load it.
except ImportError as missing:
    from airflow_hive_federation.errors import ConfigurationError

    raise ConfigurationError(
        f"grpc:// URIs need grpcio, which cannot be imported: {missing}",
        remedy="Install airflow-hive-federation[grpc].",
    ) from missing

from airflow_hive_federation.errors import (
    ConfigurationError,
    MetastoreAuthenticationError,
    MetastoreServerError,
    divided,
)
from airflow_hive_federation.metastore.channel import Deadline, ForeignProtocol, NotSent
from airflow_hive_federation.metastore.grpc_conversation import Conversation, Metadata, NoConversation
from airflow_hive_federation.metastore.grpc_route import local_way
from airflow_hive_federation.metastore.grpc_tokens import tokens_of
from airflow_hive_federation.metastore.grpc_wire import (
    CALL,
    CALL_IN_PIECES,
    CLUSTER_KEY,
    CONVERSE,
    NO_MORE_CONVERSATIONS,
    SERVICE,
    STATUS_KEY,
    TOO_MANY_CALLS,
    USER_KEY,
    unwrap,
    wrap,
)
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.settings import Endpoint, MetastoreSettings, TlsSettings
from airflow_hive_federation.metastore.trace_context import current_trace

log = logging.getLogger(__name__)

#: Beginnings of methods whose answers may be long: in pieces, an answer takes a third of a millisecond more.
_LONG = (
    "get_all_",
    "get_fields",
    "get_next_notification",
    "get_open_txns",
    "get_part",
    "get_schema",
    "get_table_objects",
    "get_tables",
    "get_valid_write_ids",
    "list_partitions",
    "show_",
)
#: Bytes of the protobuf message around the answer.
_SLACK_BYTES = 1 << 10
#: First and longest pause in seconds before another attempt at a gateway that has too many calls.
_BUSY_FIRST_S, _BUSY_MOST_S = 0.05, 2.0
#: Seconds before another attempt at a conversation with a gateway that had no room for it.
_ROOMLESS_S = 10.0
#: grpcio's texts for a stream that the server refused unread (RFC 9113, 8.7 and 6.8): at the connection's
#: limit of streams, or because the server had begun to drain. Before 1.81, grpcio uses the text of the GOAWAY
#: also for streams that the server may have read, if the connection breaks by a fault after that; so it
#: counts only in the form of later versions, which name that fault first.
_UNREAD = re.compile(
    r"((Stream removed \()?(RST_STREAM \()?Received RST_STREAM with error code 7(?!\d)"
    r"|Stream removed \(GOAWAY received;)"
)
_SERVER_TOO_LONG = "SERVER: Received message larger than max"

Code = grpc.StatusCode
_READY = grpc.ChannelConnectivity.READY.value[0]


class GrpcChannel:
    """One connection to one gateway; see :class:`.channel.Channel`.

    :raises OSError: if no server answers.
    :raises ConfigurationError: if the TLS files or the token files cannot be used.
    """

    #: ``set_ugi`` finds out whether the server is a gateway and accepts our credentials.
    needs_greeting = True

    def __init__(self, endpoint: Endpoint, settings: MetastoreSettings) -> None:
        self._endpoint = endpoint
        self._max_answer_bytes = settings.max_answer_bytes
        self._tokens = tokens_of(settings.grpc)
        self._user = settings.effective_user()
        self._cluster = ((CLUSTER_KEY, settings.grpc.cluster),) if settings.grpc.cluster else ()
        self._broken = False
        self._answer: Iterator[bytes] = iter(())
        self._piece = memoryview(b"")
        self._deadline: Deadline | None = None
        self._conversation: Conversation | None = None
        self._converses_from = 0.0
        with ExitStack() as stack:
            target = f"{_bracketed(endpoint.host)}:{endpoint.port}"
            if settings.dialer is not None:
                target = stack.enter_context(local_way(settings.dialer, endpoint.host, endpoint.port))
            self._channel = _open(target, endpoint, settings)
            stack.callback(self._channel.close)
            self._close = stack.pop_all().close
        self._call = self._channel.unary_unary(f"/{SERVICE}/{CALL}")
        self._call_in_pieces = self._channel.unary_stream(f"/{SERVICE}/{CALL_IN_PIECES}")

    def send(self, request: bytes, deadline: Deadline) -> None:
        """Make the call; see :meth:`.Channel.send`."""
        self._piece = memoryview(b"")
        self._deadline = deadline
        wait_s, renewed = _BUSY_FIRST_S, False
        while True:
            try:
                self._answer = self._ask(request, deadline, renew=renewed)
                return
            except grpc.RpcError as error:
                if error.code() is Code.UNAUTHENTICATED and self._tokens is not None and not renewed:
                    # The gateway refused the call before it read it, and may accept a newer token.
                    renewed = True
                    continue
                if not _is_busy(error):
                    raise self._translated(error, deadline) from error
            pause_s = wait_s * random.uniform(0.5, 1)  # noqa: S311 - spreads clients that were refused together
            if pause_s >= deadline.remaining_s():
                raise NotSent(f"the gateway had too many calls for {deadline.seconds:g} s")
            time.sleep(pause_s)
            wait_s = min(wait_s * 2, _BUSY_MOST_S)

    def receive(self, size: int, deadline: Deadline) -> bytes:
        """Return some bytes of the answer; see :meth:`.Channel.receive`."""
        while not self._piece:
            try:
                self._piece = memoryview(next(self._answer))
            except StopIteration:
                raise ConnectionResetError("the gateway's answer ended too soon") from None
            except grpc.RpcError as error:
                raise self._translated(error, deadline) from error
        taken, self._piece = self._piece[:size], self._piece[size:]
        return bytes(taken)

    def has_more(self) -> bool:
        """See :meth:`.Channel.has_more`; reads an answer in pieces to its end."""
        if self._piece:
            return True
        try:
            return next(self._answer, None) is not None
        except grpc.RpcError as error:
            raise self._translated(error, self._deadline or Deadline(0)) from error

    def is_stale(self) -> bool:
        """Return whether the connection was lost, or the gateway began to drain, since the last call."""
        state = getattr(getattr(self._channel, "_channel", None), "check_connectivity_state", None)
        if self._broken or state is None:
            return self._broken
        try:
            # grpcio's public method runs a thread per channel, which checks the state five times per second.
            return bool(state(False) != _READY)
        except ValueError:
            return True

    def stream(self, path: str, request: bytes, deadline: Deadline) -> Iterator[bytes]:
        """Call a streaming method of another service of the gateway; other calls may run at the same time.

        :param path: full path of the method.
        :raises ForeignProtocol: if the gateway has no such method, or did not accept the request.
        :raises OSError: if the stream broke, or the time is over.
        :raises MetastoreAuthenticationError: if the gateway rejects our credentials.
        """
        try:
            call = self._channel.unary_stream(path)(
                request,
                timeout=deadline.remaining_s(),
                metadata=[*self._metadata(renew=False), *current_trace()],
            )
        except ValueError as error:
            raise ConnectionAbortedError("the channel was closed") from error
        try:
            yield from call
        except grpc.RpcError as error:
            raise _translated(str(self._endpoint), error.code(), error.details() or "", None) from error
        finally:
            call.cancel()

    def interrupt(self) -> None:
        """End another thread's call, after which the channel is unusable; never fails."""
        self.close()

    def close(self) -> None:
        """Close the channel; see :meth:`.Channel.close`."""
        self._broken = True
        with contextlib.suppress(OSError, ValueError):
            self._close()

    def _ask(self, request: bytes, deadline: Deadline, *, renew: bool) -> Iterator[bytes]:
        metadata = self._metadata(renew=renew)
        try:
            if not _is_long(request):
                answer: Iterator[bytes] = iter((self._ask_shortly(request, deadline, metadata),))
            else:
                pieces = self._call_in_pieces(
                    wrap(request), timeout=deadline.remaining_s(), metadata=[*metadata, *current_trace()]
                )
                # The first piece is read here, so that send() sees a refusal and can make the call again.
                answer = map(self._value, _from(next(pieces), pieces))
        except ValueError as error:
            raise ConnectionAbortedError("the channel was closed") from error
        except StopIteration:
            raise ConnectionResetError("the gateway gave no answer") from None
        return answer

    def _ask_shortly(self, request: bytes, deadline: Deadline, metadata: Metadata) -> bytes:
        """Make a call whose answer is short enough for one message, and return the answer."""
        if time.monotonic() >= self._converses_from:
            try:
                return self._conversing(metadata).ask(request, deadline)
            except NoConversation as reason:
                log.debug("no conversation with %s: %s", self._endpoint, reason)
                self._conversation, self._converses_from = None, math.inf
            except grpc.RpcError as error:
                if dict(error.trailing_metadata() or ()).get(STATUS_KEY) != NO_MORE_CONVERSATIONS and not (
                    error.code() is Code.RESOURCE_EXHAUSTED and error.details() == TOO_MANY_CALLS
                ):
                    raise
                self._conversation, self._converses_from = None, time.monotonic() + _ROOMLESS_S
        traced = [*metadata, *current_trace()]
        return self._value(self._call(wrap(request), timeout=deadline.remaining_s(), metadata=traced))

    def _conversing(self, metadata: Metadata) -> Conversation:
        conversation = self._conversation
        if conversation is None or not conversation.fits(metadata):
            if conversation is not None:
                conversation.end()
            conversation = Conversation(self._channel, f"/{SERVICE}/{CONVERSE}", metadata)
            self._conversation = conversation
        return conversation

    def _metadata(self, *, renew: bool) -> Metadata:
        metadata = [(USER_KEY, self._user), *self._cluster]
        if self._tokens is not None:
            metadata.append(("authorization", f"Bearer {self._tokens.token(renew=renew)}"))
        return metadata

    def _value(self, data: bytes) -> bytes:
        try:
            return unwrap(data)
        except MalformedMessage as error:
            raise ForeignProtocol(str(error)) from error

    def _translated(self, error: Any, deadline: Deadline) -> Exception:
        self._broken = True
        code, text = error.code(), error.details() or ""
        if code is Code.DEADLINE_EXCEEDED:
            return deadline.passed()
        status = dict(error.trailing_metadata() or ()).get(STATUS_KEY)
        return _translated(str(self._endpoint), code, text, status)


def _translated(uri: str, code: Any, text: str, status: str | None) -> Exception:
    """Return the error by which the client knows whether a call may be repeated; see the module's text."""
    # A gateway's text ends with its remedy, and the client's own error adds one, too.
    text, remedy = divided(text)
    if code is Code.UNAUTHENTICATED:
        return MetastoreAuthenticationError(
            f"{uri}: {text}",
            remedy="Correct the token, the service account's key file, the audience or the certificate.",
            uri=uri,
        )
    if code is Code.UNAVAILABLE and (status == "unavailable" or _UNREAD.match(text)):
        return NotSent(text, remedy=remedy)
    too_long = code is Code.RESOURCE_EXHAUSTED and text.startswith(_SERVER_TOO_LONG)
    # Only a gateway sends that metadata with INVALID_ARGUMENT: it has read the call, and refuses its content.
    if too_long or (code is Code.INVALID_ARGUMENT and status is not None):
        return _not_accepted(uri, text, remedy, too_long=too_long)
    if code in {Code.UNIMPLEMENTED, Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED}:
        return ForeignProtocol(f"{code.name}: {text}")
    if code is Code.UNAVAILABLE and "handshake" in text.lower():
        return ssl.SSLError(ssl.SSL_ERROR_SSL, text)
    return ConnectionResetError(f"{code.name}: {text}")


def _not_accepted(uri: str, text: str, remedy: str, *, too_long: bool) -> MetastoreServerError:
    if too_long:
        remedy = "Make smaller batches, or raise metastore.grpc.max.request.size of the gateway."
        return MetastoreServerError(f"{uri} does not accept so long a call: {text}", remedy=remedy, uri=uri)
    return MetastoreServerError(
        f"The gateway at {uri} does not accept the call: {text}",
        remedy=remedy or "Correct the arguments of the call.",
        uri=uri,
    )


def _open(target: str, endpoint: Endpoint, settings: MetastoreSettings) -> grpc.Channel:
    options: list[tuple[str, Any]] = [
        # Each channel has a connection of its own, as on every other transport: closing it affects no other.
        ("grpc.use_local_subchannel_pool", 1),
        # The client decides which calls to repeat, because it knows the methods.
        ("grpc.enable_retries", 0),
        ("grpc.max_receive_message_length", settings.max_answer_bytes + _SLACK_BYTES),
        ("grpc.max_send_message_length", -1),
        ("grpc.primary_user_agent", settings.identifier),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.enable_http_proxy", 0),
        (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1),
    ]
    if settings.is_plaintext_grpc(endpoint):
        return grpc.insecure_channel(target, options=options)
    if settings.dialer is not None:
        # The route's local address has another name than the server.
        options.append(("grpc.ssl_target_name_override", endpoint.host))
    return grpc.secure_channel(target, _credentials(settings.tls or TlsSettings()), options=options)


def _credentials(tls: TlsSettings) -> grpc.ChannelCredentials:
    tls.context()  # Raises an error that names the bad file, which gRPC does not.
    trusted = tls.ca_file or ssl.get_default_verify_paths().cafile
    chain = _read(tls.cert_file) if tls.cert_file else None
    key = _key(_read(tls.key_file or tls.cert_file), tls.key_password) if tls.cert_file else None
    return grpc.ssl_channel_credentials(
        root_certificates=_read(trusted) if trusted else None, private_key=key, certificate_chain=chain
    )


def _read(path: str | None) -> bytes:
    try:
        return Path(path or "").read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"The TLS file {path} cannot be read: {error}", remedy="Give readable PEM files."
        ) from error


def _key(pem: bytes, password: str | None) -> bytes:
    """Return the key without its password, because gRPC cannot take passwords."""
    if password is None:
        return pem
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(pem, password.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_busy(error: Any) -> bool:
    """Return whether the gateway refused the call before it read it, because it has too many calls."""
    if error.code() is not Code.RESOURCE_EXHAUSTED:
        return False
    status = dict(error.trailing_metadata() or ()).get(STATUS_KEY)
    return status == "exhausted" or error.details() == TOO_MANY_CALLS


def _is_long(request: bytes) -> bool:
    length = int.from_bytes(request[4:8], "big")
    return request[8 : 8 + length].decode(errors="replace").startswith(_LONG)


def _from(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest

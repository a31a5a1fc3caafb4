"""Encodes Thrift messages in gRPC messages for the client and the gateway, without grpcio.

A call is a whole Thrift message in the strict binary protocol, inside a ``google.protobuf.BytesValue``; so
is its answer, or each piece of it. The message names the method.

A conversation is a stream that carries one call after the other, each with its own deadline, and the answer
or refusal of each: a message on an open stream takes half the time of a gRPC call. Its messages are
:class:`Question` and :class:`Answer`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.trace_context import PARENT, STATE, Trace, trace_of
from airflow_hive_federation.model.protobuf import BYTES, VARINT, fields_of, message_of, varint

PACKAGE = "airflow_hive_federation.gateway.v1"
SERVICE = f"{PACKAGE}.HiveMetastoreThrift"
#: The method that takes one message and returns one.
CALL = "Call"
#: The method that takes one message and returns the answer in pieces, so that neither side buffers all of it.
CALL_IN_PIECES = "CallInPieces"
#: The method that takes questions and returns their answers, one after the other.
CONVERSE = "Converse"
#: Seconds after which our client does not use a silent conversation again. The gateway ends the conversation
#: later than that, so that no question arrives as it ends.
CONVERSATION_IDLE_S = 60.0

#: Metadata key of the user for whom an unauthenticated client calls, the same as in Hive's HTTP transport.
USER_KEY = "x-actor-username"
#: Metadata key of the cluster whose locations the answers show.
CLUSTER_KEY = "hive-cluster"
#: Trailing metadata key of the kind of a refusal, which is more precise than gRPC's codes: a value of
#: :class:`airflow_hive_federation.gateway.refusals.Status`.
STATUS_KEY = "hive-federation-status"
#: The kind of refusal by which the gateway rejects another conversation, but still accepts calls.
NO_MORE_CONVERSATIONS = "no-more-conversations"
#: The text with which grpcio's server refuses a call above its limit, before it reads the call.
TOO_MANY_CALLS = "Concurrent RPC limit exceeded!"

_VALUE_TAG = 0x0A  # field 1, length-delimited
_MESSAGE, _TIMEOUT_MS = 1, 2
_TRACE = {3: PARENT, 4: STATE}
_CODE, _STATUS, _TEXT = 2, 3, 4


@dataclass(frozen=True, slots=True)
class Question:
    """One call of a conversation.

    :param message: a whole Thrift message.
    :param timeout_ms: milliseconds that the answer may take; 0 leaves the limit to the gateway.
    :param trace: the trace context of the call.
    """

    message: bytes
    timeout_ms: int = 0
    trace: Trace = ()

    def to_bytes(self) -> bytes:
        """Encode the question as a message of the stream."""
        trace = zip(_TRACE, self.trace, strict=False)
        return b"".join(
            [
                wrap(self.message),
                number_field(_TIMEOUT_MS, self.timeout_ms),
                *(length_delimited(number, value.encode()) for number, (_, value) in trace),
            ]
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Question:
        """Decode a question from a message of the stream.

        :raises MalformedMessage: if the message is no question.
        """
        message, timeout_ms, trace = b"", 0, {}
        for number, value in fields(data):
            if number == _MESSAGE and isinstance(value, bytes):
                message = value
            elif number == _TIMEOUT_MS and isinstance(value, int):
                timeout_ms = value
            elif number in _TRACE and isinstance(value, bytes):
                trace[_TRACE[number]] = value.decode(errors="replace")
            else:
                raise MalformedMessage(f"a question with the field {number}")
        return cls(message, timeout_ms, trace_of(trace))


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question of a conversation: a Thrift message or a refusal.

    :param message: a whole Thrift message; empty if the call was refused.
    :param code: number of gRPC's code for the refusal; 0 without a refusal.
    :param status: kind of the refusal, see :data:`STATUS_KEY`.
    :param text: text of the refusal.
    """

    message: bytes = b""
    code: int = 0
    status: str = ""
    text: str = ""

    def to_bytes(self) -> bytes:
        """Encode the answer as a message of the stream."""
        if not self.code:
            return wrap(self.message)
        return (
            number_field(_CODE, self.code)
            + length_delimited(_STATUS, self.status.encode())
            + length_delimited(_TEXT, self.text.encode())
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Answer:
        """Decode an answer from a message of the stream.

        :raises MalformedMessage: if the message is no answer.
        """
        if data[:1] == _VALUE_START:
            return cls(unwrap(data))
        known = dict(fields(data))
        code, status, text = known.get(_CODE), known.get(_STATUS, b""), known.get(_TEXT, b"")
        if not isinstance(code, int) or not isinstance(status, bytes) or not isinstance(text, bytes):
            raise MalformedMessage("an answer with neither a message nor a code")
        return cls(code=code, status=status.decode(errors="replace"), text=text.decode(errors="replace"))


_VALUE_START = bytes([_VALUE_TAG])


def wrap(message: bytes) -> bytes:
    """Encode a message as a ``BytesValue``."""
    return _VALUE_START + varint(len(message)) + message


def unwrap(data: bytes) -> bytes:
    """Return the value of a ``BytesValue``.

    :raises MalformedMessage: if the bytes are no ``BytesValue``, or hold more than one.
    """
    if not data:
        return b""
    if data[0] != _VALUE_TAG:
        raise MalformedMessage("it is no google.protobuf.BytesValue")
    length = shift = 0
    for position in range(1, min(len(data), 6)):
        length |= (data[position] & 0x7F) << shift
        shift += 7
        if not data[position] & 0x80:
            if len(data) != position + 1 + length:
                break
            return data[position + 1 :]
    raise MalformedMessage("it is no google.protobuf.BytesValue of that length")


def fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield the fields of a protobuf message that holds only numbers, texts, bytes and messages.

    :raises MalformedMessage: if the bytes are no such message.
    """
    try:
        parsed = fields_of(data)
    except (ValueError, IndexError) as error:
        raise MalformedMessage(f"it is no protocol buffer: {error}") from error
    for number, kind, value in parsed:
        if kind not in {VARINT, BYTES}:
            raise MalformedMessage(f"a field of the wire type {kind}")
        yield number, value


def length_delimited(number: int, data: bytes) -> bytes:
    """Encode a protobuf field of bytes, text or a message."""
    return message_of([(number, BYTES, data)])


def number_field(number: int, value: int) -> bytes:
    """Encode a protobuf field of a number that is not negative."""
    return message_of([(number, VARINT, value)])

"""Calls of the metastore on behalf of a call of gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_hive_federation.gateway.grpc.calls import Call
from airflow_hive_federation.gateway.handler import Handler, Status, refused
from airflow_hive_federation.gateway.services.texts import Texts
from airflow_hive_federation.metastore.connection import MAY_BE_NULL, message_types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.protocol import decode_reply, encode_call
from airflow_hive_federation.metastore.struct import Fault, Struct

_SEQUENCE_ID = 1
_RESULT = 0  # the id of ``success``
_GREETING = "set_ugi"


def exchange(handler: Handler, call: Call, method: str, arguments: Struct) -> Struct:
    """Call a method and return its result, without exceptions in it.

    :raises Fault: what the metastore raised.
    :raises HiveFederationError: what the gateway refuses, or a metastore that does not answer.
    """
    if method == _GREETING:
        # The user is the one who was authenticated, whatever the client says.
        result = message_types(method)[1]()
        result.__dict__["success"] = [call.caller.user, *call.caller.groups]
        return result
    return _result(method, reply_to(handler, call, method, arguments))


def reply_to(handler: Handler, call: Call, method: str, arguments: Struct) -> bytes:
    """Call a method and return the message that answers it, undecoded.

    :raises HiveFederationError: what the gateway refuses, or a metastore that does not answer.
    """
    try:
        message = encode_call(method, arguments, _SEQUENCE_ID, oneway=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise refused(Status.INVALID, f"{method}: {error}") from error
    return handler.ask(method, message, call.caller, call.deadline, cancellation=call.cancellation)


def texts_of(method: str, reply: bytes) -> Sequence[str]:
    """Return the list of texts that a message answers a call with; it stays in the form of the message.

    :raises Fault: what the metastore raised.
    :raises HiveFederationError: it is no such answer.
    """
    try:
        return Texts.of(reply)
    except MalformedMessage:
        # Raises what the metastore raised, or says what it is instead.
        result = _result(method, reply)
    return list(result.__dict__.get("success") or ())


def _result(method: str, reply: bytes) -> Struct:
    result = message_types(method)[1]()
    try:
        decode_reply(Reply(reply), method, _SEQUENCE_ID, result)
    except (MalformedMessage, EOFError) as error:
        raise refused(Status.FAILED, f"{method}: the metastore's answer is none: {error}") from error
    for value in result.__dict__.values():
        if isinstance(value, Fault):
            raise value
    if "success" not in result.__dict__ and _RESULT in result.thrift_spec and method not in MAY_BE_NULL:
        # A message would say that everything is empty.
        raise refused(Status.FAILED, f"{method}: the metastore's answer holds neither a result nor an error.")
    return result


def ask(handler: Handler, call: Call, method: str, *args: Any) -> Any:
    """Call a method with its arguments in the definition's order, and return its answer.

    :raises Fault: what the metastore raised.
    :raises HiveFederationError: see :func:`exchange`.
    """
    return exchange(handler, call, method, arguments_of(method, *args)).__dict__.get("success")


def arguments_of(method: str, *args: Any) -> Struct:
    """Return the arguments of a call, given in the definition's order."""
    kind = message_types(method)[0]
    names = [field[1] for field in kind.thrift_spec.values()]
    return kind(**dict(zip(names, args, strict=False)))


class Reply:
    """Bytes of an answer, as a source."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    def read(self, size: int) -> bytes:
        """See :meth:`.message_bounds.Source.read`."""
        if self._position >= len(self._data):
            raise EOFError("it ends too soon")
        data = self._data[self._position : self._position + size]
        self._position += len(data)
        return data

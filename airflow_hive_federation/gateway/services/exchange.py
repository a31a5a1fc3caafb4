"""Calls the metastore on behalf of a gRPC call."""

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
    """Call a method and return its result; raise an exception that the result holds.

    :raises Fault: the metastore answered with this exception.
    :raises HiveFederationError: the gateway refuses the call, or the metastore does not answer.
    """
    if method == _GREETING:
        # The authenticated user counts, not the name in the client's call.
        result = message_types(method)[1]()
        result.__dict__["success"] = [call.caller.user, *call.caller.groups]
        return result
    return _result(method, reply_to(handler, call, method, arguments))


def reply_to(handler: Handler, call: Call, method: str, arguments: Struct) -> bytes:
    """Call a method and return the answer as an undecoded message.

    :raises HiveFederationError: the gateway refuses the call, or the metastore does not answer.
    """
    try:
        message = encode_call(method, arguments, _SEQUENCE_ID, oneway=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise refused(Status.INVALID, f"{method}: {error}") from error
    return handler.ask(call.of(method, message))


def texts_of(method: str, reply: bytes) -> Sequence[str]:
    """Return the list of strings in an answer, without decoding all of them at once.

    :raises Fault: the metastore answered with this exception.
    :raises HiveFederationError: the message is no answer with a list of strings.
    """
    try:
        return Texts.of(reply)
    except MalformedMessage:
        # Raises the metastore's exception, if the answer holds one, or an error that names the fault.
        result = _result(method, reply)
    return list(result.__dict__.get("success") or ())


def _result(method: str, reply: bytes) -> Struct:
    result = message_types(method)[1]()
    try:
        decode_reply(Reply(reply), method, _SEQUENCE_ID, result)
    except (MalformedMessage, EOFError) as error:
        raise refused(Status.FAILED, f"{method}: the metastore's answer is not valid: {error}") from error
    for value in result.__dict__.values():
        if isinstance(value, Fault):
            raise value
    if "success" not in result.__dict__ and _RESULT in result.thrift_spec and method not in MAY_BE_NULL:
        # As a message, such a result would look like an object whose fields are all empty.
        raise refused(Status.FAILED, f"{method}: the metastore's answer holds neither a result nor an error.")
    return result


def ask(handler: Handler, call: Call, method: str, *args: object) -> Any:
    """Call a method with its arguments in the interface definition's order, and return its return value.

    :raises Fault: the metastore answered with this exception.
    :raises HiveFederationError: see :func:`exchange`.
    """
    return exchange(handler, call, method, arguments_of(method, *args)).__dict__.get("success")


def arguments_of(method: str, *args: object) -> Struct:
    """Return the arguments of a call as a struct; they come in the interface definition's order."""
    kind = message_types(method)[0]
    names = [field[1] for field in kind.thrift_spec.values()]
    return kind(**dict(zip(names, args, strict=False)))


class Reply:
    """A source that reads from the bytes of an answer."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    def read(self, size: int) -> bytes:
        """See :meth:`.message_bounds.Source.read`."""
        if self._position >= len(self._data):
            raise EOFError("it ends too soon")
        data = self._data[self._position : self._position + size]
        self._position += len(data)
        return data

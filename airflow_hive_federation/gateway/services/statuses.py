"""Turns the metastore's exceptions into gRPC statuses."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from airflow_hive_federation.gateway.grpc.calls import status_text
from airflow_hive_federation.gateway.services.codec import codec
from airflow_hive_federation.gateway.services.layout import PACKAGE
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import ApplicationFault
from airflow_hive_federation.metastore.struct import Fault
from airflow_hive_federation.model.protobuf import BYTES, VARINT, message_of

#: Trailing metadata with the name of the metastore's exception, and with its message in UTF-8.
EXCEPTION_KEY, MESSAGE_KEY = "hive-exception", "hive-message-bin"
#: Trailing metadata with a ``google.rpc.Status``, whose details hold the exception as a message.
DETAILS_KEY = "grpc-status-details-bin"
#: Most bytes of the text, and of the message; three fields of the trailing metadata hold them.
_LONGEST_TEXT = 1500

Code = grpc.StatusCode

CODES: dict[type[Fault], grpc.StatusCode] = {
    types.AlreadyExistsException: Code.ALREADY_EXISTS,
    types.CompactionAbortedException: Code.FAILED_PRECONDITION,
    types.ConfigValSecurityException: Code.PERMISSION_DENIED,
    types.InvalidInputException: Code.INVALID_ARGUMENT,
    types.InvalidObjectException: Code.INVALID_ARGUMENT,
    types.InvalidOperationException: Code.FAILED_PRECONDITION,
    types.InvalidPartitionException: Code.INVALID_ARGUMENT,
    types.MetaException: Code.INTERNAL,
    types.NoSuchCompactionException: Code.NOT_FOUND,
    types.NoSuchLockException: Code.NOT_FOUND,
    types.NoSuchObjectException: Code.NOT_FOUND,
    types.NoSuchTxnException: Code.NOT_FOUND,
    types.TxnAbortedException: Code.ABORTED,
    types.TxnOpenException: Code.FAILED_PRECONDITION,
    types.UnknownDBException: Code.NOT_FOUND,
    types.UnknownPartitionException: Code.NOT_FOUND,
    types.UnknownTableException: Code.NOT_FOUND,
}


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The gRPC status of a call without a response.

    :param text: text of the status, fit for the client.
    :param trailers: trailing metadata.
    """

    code: grpc.StatusCode
    text: str
    trailers: tuple[tuple[str, str | bytes], ...] = ()

    def end(self, context: grpc.ServicerContext) -> None:
        """End the call with this status; does not return."""
        context.set_trailing_metadata(self.trailers)
        context.abort(self.code, self.text)


def ending(fault: Fault) -> Ending:
    """Return the status of a call that the metastore answered with an exception."""
    name, message = type(fault).__name__, fault.text()
    text, data = status_text(message, _LONGEST_TEXT) or name, message.encode()
    if isinstance(fault, ApplicationFault):
        code = Code.UNIMPLEMENTED if fault.type == ApplicationFault.UNKNOWN_METHOD else Code.INTERNAL
        return Ending(code=code, text=text)
    code = CODES.get(type(fault), Code.INTERNAL)
    trailers: list[tuple[str, str | bytes]] = [
        (EXCEPTION_KEY, name),
        (MESSAGE_KEY, data[:_LONGEST_TEXT].decode(errors="ignore").encode()),
    ]
    if len(data) <= _LONGEST_TEXT:
        trailers.append((DETAILS_KEY, _details(code, text, fault)))
    return Ending(code=code, text=text, trailers=tuple(trailers))


def _details(code: grpc.StatusCode, text: str, fault: Fault) -> bytes:
    kind = f"type.googleapis.com/{PACKAGE}.{type(fault).__name__}".encode()
    fault_kind: object = type(fault)
    detail = message_of([(1, BYTES, kind), (2, BYTES, codec(fault_kind).to_bytes(fault))])
    return message_of([(1, VARINT, code.value[0]), (2, BYTES, text.encode()), (3, BYTES, detail)])

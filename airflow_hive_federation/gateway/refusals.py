"""Turns the gateway's errors into bytes of a Thrift answer, and into statuses for fronts with statuses."""

from __future__ import annotations

import logging
from enum import StrEnum

from airflow_hive_federation import errors
from airflow_hive_federation.gateway.messages import (
    EXCEPTION,
    I32,
    REPLY,
    STOP,
    STRING,
    STRUCT,
    field_bytes,
    head_bytes,
    text_bytes,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.idl.service import METHODS

log = logging.getLogger(__name__)


class Status(StrEnum):
    """The reason of a refusal; the gRPC front maps each to a status code."""

    INVALID = "invalid"
    UNKNOWN_METHOD = "unknown_method"
    UNAUTHENTICATED = "unauthenticated"
    DENIED = "denied"
    UNAVAILABLE = "unavailable"
    DEADLINE = "deadline"
    EXHAUSTED = "exhausted"
    CANCELLED = "cancelled"
    OUTCOME_UNKNOWN = "outcome_unknown"
    FAILED = "failed"


# Types of ``TApplicationException``.
_UNKNOWN_METHOD, _INTERNAL_ERROR, _PROTOCOL_ERROR = 1, 6, 7

_STATUSES: tuple[tuple[type[errors.HiveFederationError], Status], ...] = (
    (errors.UnsupportedMethodError, Status.UNKNOWN_METHOD),
    (errors.MetastoreTimeoutError, Status.DEADLINE),
    (errors.OutcomeUnknownError, Status.OUTCOME_UNKNOWN),
    (errors.MetastoreUnreachableError, Status.UNAVAILABLE),
    (errors.MetastoreAuthenticationError, Status.UNAVAILABLE),
    (errors.MetastoreProtocolError, Status.UNAVAILABLE),
    (errors.TunnelError, Status.UNAVAILABLE),
    (errors.RemoteUnavailableError, Status.UNAVAILABLE),
    (errors.UnknownClusterError, Status.DENIED),
)


def status_of(error: errors.HiveFederationError) -> Status:
    """Return the status of an error."""
    if isinstance(error, errors.GatewayError):
        return Status(str(error.facts.get("status", Status.FAILED)))
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), Status.FAILED)


def refused(status: Status, message: str, *, remedy: str = "") -> errors.GatewayError:
    """Make the error that refuses a call."""
    return errors.GatewayError(message, remedy=remedy, status=str(status))


def refusal(method: str, sequence_id: int, error: errors.HiveFederationError) -> bytes:
    """Write the answer that refuses a call.

    A client gets the ``MetaException`` that nearly every method of Hive declares, and raises it as usual. It
    gets Thrift's ``TApplicationException`` if the method is unknown, the message is malformed, or the method
    is one of the few that declare no ``MetaException``.

    :param method: the method of the call; it need not exist.
    :param sequence_id: the call's sequence id.
    """
    status = status_of(error)
    if status not in {Status.UNKNOWN_METHOD, Status.INVALID}:
        for number, field in METHODS.get(method, ((), {}, False))[1].items():
            if len(field) == 4 and field[2] is types.MetaException:
                fault = field_bytes(1, STRING, text_bytes(str(error))) + bytes([STOP])
                body = field_bytes(number, STRUCT, fault) + bytes([STOP])
                return head_bytes(method, REPLY, sequence_id) + body
    kind = {Status.UNKNOWN_METHOD: _UNKNOWN_METHOD, Status.INVALID: _PROTOCOL_ERROR}.get(
        status, _INTERNAL_ERROR
    )
    return application_fault(method, sequence_id, kind, str(error))


def application_fault(method: str, sequence_id: int, kind: int, text: str) -> bytes:
    """Write a ``TApplicationException``."""
    body = field_bytes(1, STRING, text_bytes(text)) + field_bytes(2, I32, kind.to_bytes(4, "big"))
    return head_bytes(method, EXCEPTION, sequence_id) + body + bytes([STOP])

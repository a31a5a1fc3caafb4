"""Writes an owner's names into calls that go to it, and local names into its answers; does no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from airflow_hive_federation.gateway.federation.owners import Naming, OwnedName
from airflow_hive_federation.gateway.federation.views import rename_views
from airflow_hive_federation.gateway.messages import CALL, REPLY, head_bytes, read_fields, read_head
from airflow_hive_federation.gateway.names import (
    Reference,
    catalogs,
    identifier,
    references,
    replaced,
    with_catalogs,
)
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.protocol import encode
from airflow_hive_federation.metastore.struct import Fault, Struct
from airflow_hive_federation.metastore.wire import from_bytes

S = TypeVar("S", bound=Struct)
#: The databases and tables that a call names, each with its place.
Resolved = Sequence[tuple[Reference, OwnedName]]


def to_owner(message: bytes, resolved: Resolved) -> bytes:
    """Return a call with the owner's names of its databases and tables."""
    return replaced(message, [(reference, place.database, place.table) for reference, place in resolved])


def keeps_names(resolved: Resolved) -> bool:
    """Return whether all databases and tables of a call have the same names at their owner."""
    return all(
        (reference.database, reference.table) == (place.database, place.table)
        for reference, place in resolved
    )


def to_client(method: str, answer: bytes, naming: Naming) -> bytes:
    """Return an answer with the local names, which clients of the gateway know.

    :raises GatewayError: a view in the answer cannot be rewritten with local names.
    :raises MalformedMessage: the message is no answer to this method.
    """
    head = read_head(answer)
    if head.kind != REPLY:
        return answer
    kind = message_types(method)[1]
    answer = rename_views(method, answer, naming)
    mentions = references(answer, head.body, kind)
    return replaced(
        answer, [(reference, *naming.local(reference.database, reference.table)) for reference in mentions]
    )


def in_catalog(message: bytes, kind: type[Struct], former: str, later: str) -> bytes:
    """Return a call or an answer with another name of a catalog.

    :param kind: the arguments of the method, or its result.
    :raises MalformedMessage: the message has no such struct.
    """
    names = catalogs(message, read_head(message).body, kind)
    return with_catalogs(message, [(name, later) for name in names if identifier(name.name) == former])


def arguments(method: str, message: bytes) -> Any:
    """Read the arguments of a call.

    :raises WireFormatError: the bytes are no arguments of this method.
    """
    return from_bytes(message_types(method)[0], message[read_head(message).body :])


def check_request(values: Struct) -> None:
    """Check that a call has its request, if the method takes nothing but one struct.

    :param values: arguments of the method.
    :raises MalformedMessage: the call has no request.
    """
    if not values.set_fields():
        raise MalformedMessage("it has no request")


def call_of(method: str, sequence_id: int, values: Struct) -> bytes:
    """Write a call with the given arguments."""
    return head_bytes(method, CALL, sequence_id) + encode(values)


def result(method: str, answer: bytes) -> Any:
    """Read the return value of an answer; ``None`` if the answer is a fault.

    :raises WireFormatError: the bytes are no answer to this method.
    """
    head = read_head(answer)
    if head.kind != REPLY or any(field.number for field in read_fields(answer, head.body)):
        return None
    return from_bytes(message_types(method)[1], answer[head.body :]).success  # type: ignore[attr-defined]


def answer_of(method: str, sequence_id: int, success: object) -> bytes:
    """Write an answer that returns a value."""
    return head_bytes(method, REPLY, sequence_id) + encode(message_types(method)[1](success=success))


def fault_of(method: str, answer: bytes) -> Fault | None:
    """Return the declared exception of an answer; ``None`` if it has none, or one of Thrift's own."""
    head = read_head(answer)
    if head.kind != REPLY:
        return None
    values = from_bytes(message_types(method)[1], answer[head.body :]).set_fields()
    return next((value for value in values.values() if isinstance(value, Fault)), None)


def fault_text(method: str, answer: bytes) -> str:
    """Return the text of an answer that is a fault."""
    if (fault := fault_of(method, answer)) is not None:
        return f"{type(fault).__name__}: {fault.text()}"
    head = read_head(answer)
    if head.kind == REPLY:
        return "neither a value nor a fault"
    for field in read_fields(answer, head.body):
        if field.number == 1:
            return answer[field.start + 4 : field.end].decode(errors="replace")
    return "an error without a text"

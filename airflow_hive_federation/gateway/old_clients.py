"""Translates old clients' calls into methods that newer metastores have, and translates the answers back.

Hive 4 dropped ``get_table`` and ``get_table_objects_by_name`` (HIVE-26537). The gateway calls the ``_req``
method of each instead. Its answer holds the same structs, whose bytes are copied without decoding, so that
nothing is lost.

Hive 4 creates an ACID table only for a client that sends the capability to write one
(``MetastoreDefaultTransformer``), and the requests of Hive 3.1 have no field for capabilities. If the
gateway's configuration names capabilities for such clients, the gateway creates their tables by
``create_table_req``.

Hive 4 cannot read the expressions by which Hive 2.3 and 3.1 select partitions: it closes the connection, or
answers with a ``MetaException`` (``PartitionExpressionForMetastore``, since Kryo 5; it depends on the bytes).
Those clients accept all partitions as the answer if it is marked as unfiltered, for they filter the rows
anyway (``PartitionPruner``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_hive_federation.gateway.messages import (
    BOOL,
    CALL,
    EXCEPTION,
    REPLY,
    STOP,
    STRUCT,
    field_bytes,
    head_bytes,
    read_fields,
    read_head,
)
from airflow_hive_federation.gateway.names import catalog_of
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.protocol import encode
from airflow_hive_federation.metastore.struct import Struct
from airflow_hive_federation.metastore.wire import from_bytes

UNKNOWN_METHOD = 1
IDENTIFIER = "hive-federation-gateway"
BY_EXPRESSION = "get_partitions_by_expr"
_WHOLE = "get_partitions_req"


@dataclass(frozen=True)
class Substitute:
    """A newer method that replaces an old one.

    :param method: name of the newer method.
    :param request: makes the newer method's argument from the arguments of the old method.
    :param field: id of the field of the newer answer that holds the old method's return value.
    """

    method: str
    request: Callable[[Any], Struct]
    field: int


def _get_table(args: Any) -> Struct:
    return types.GetTableRequest(**_where(args.dbname), tblName=args.tbl_name)


def _get_tables(args: Any) -> Struct:
    return types.GetTablesRequest(**_where(args.dbname), tblNames=args.tbl_names)


def _get_partitions(args: Any) -> Struct:
    return types.GetPartitionsByNamesRequest(
        # This request has no field for a catalog; its database name includes the catalog.
        db_name=args.db_name,
        tbl_name=args.tbl_name,
        names=args.names,
    )


SUBSTITUTES: dict[str, Substitute] = {
    "get_partitions_by_names": Substitute("get_partitions_by_names_req", _get_partitions, 1),
    "get_table": Substitute("get_table_req", _get_table, 1),
    "get_table_objects_by_name": Substitute("get_table_objects_by_name_req", _get_tables, 1),
}


def _create_table(args: Any) -> types.CreateTableRequest:
    """Return the request for any of the old methods, whose fields have the same names in it, except two."""
    fields = args.set_fields()
    request = types.CreateTableRequest(
        table=fields.pop("tbl", None), envContext=fields.pop("environment_context", None)
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


#: Calls that create a table and carry no capabilities of the client.
CREATES: dict[str, Substitute] = dict.fromkeys(
    ("create_table", "create_table_with_constraints", "create_table_with_environment_context"),
    Substitute("create_table_req", _create_table, 0),
)


_ALL = {**SUBSTITUTES, **CREATES}


def is_unknown_method(answer: bytes) -> bool:
    """Return whether an answer reports that the server has no such method."""
    head = read_head(answer)
    if head.kind != EXCEPTION:
        return False
    return any(
        field.number == 2 and int.from_bytes(answer[field.start : field.end], "big") == UNKNOWN_METHOD
        for field in read_fields(answer, head.body)
    )


def is_refused_expression(answer: bytes) -> bool:
    """Return whether an answer to :data:`BY_EXPRESSION` begins as a ``MetaException`` or Thrift exception."""
    head = read_head(answer)
    return head.kind == EXCEPTION or answer[head.body : head.body + 3] == bytes([STRUCT]) + b"\0\1"


def substituted_call(method: str, message: bytes, capabilities: Sequence[str] = ()) -> tuple[str, bytes]:
    """Return the newer method and its call, with the sequence id of the old call.

    :param capabilities: Hive's names of capabilities, sent for a client that creates a table.
    :raises WireFormatError: the call's arguments cannot be read.
    """
    head = read_head(message)
    substitute = _ALL[method]
    arguments = from_bytes(message_types(method)[0], message[head.body :])
    kind = message_types(substitute.method)[0]
    (name,) = (field[1] for field in kind.thrift_spec.values())
    request = substitute.request(arguments)
    if isinstance(request, types.CreateTableRequest):
        request.processorCapabilities, request.processorIdentifier = list(capabilities), IDENTIFIER
    body = encode(kind(**{name: request}))
    return substitute.method, head_bytes(substitute.method, CALL, head.sequence_id) + body


def substituted_answer(method: str, answer: bytes) -> bytes:
    """Turn the answer to the newer method into an answer to the old method.

    :raises MalformedMessage: the message is no answer to the newer method.
    """
    head, substitute = read_head(answer), _ALL[method]
    begin = head_bytes(method, head.kind, head.sequence_id)
    if head.kind != REPLY:
        return begin + answer[head.body :]
    body = b""
    for field in read_fields(answer, head.body):
        if field.number:
            number, value = (
                _fault_number(method, substitute.method, field.number),
                answer[field.start : field.end],
            )
            body += field_bytes(number, STRUCT, value)
            continue
        for inner in read_fields(answer, field.start):
            if inner.number == substitute.field:
                body += field_bytes(0, inner.ttype, answer[inner.start : inner.end])
    return begin + body + bytes([STOP])


def call_for_all_partitions(message: bytes) -> tuple[str, bytes] | None:
    """Return a method and its call that fetch all partitions instead of those that match an expression.

    :return: ``None`` if the caller limits the number of partitions: the first ones might not match.
    :raises WireFormatError: the call's arguments cannot be read.
    """
    head = read_head(message)
    request = from_bytes(message_types(BY_EXPRESSION)[0], message[head.body :]).req  # type: ignore[attr-defined]
    if request.maxParts is not None and request.maxParts >= 0:
        return None
    whole = types.PartitionsRequest(
        catName=request.catName,
        dbName=request.dbName,
        tblName=request.tblName,
        maxParts=-1,
        validWriteIdList=request.validWriteIdList,
        id=request.id,
    )
    body = encode(message_types(_WHOLE)[0](req=whole))
    return _WHOLE, head_bytes(_WHOLE, CALL, head.sequence_id) + body


def answer_with_all_partitions(answer: bytes) -> bytes | None:
    """Turn the answer to :func:`call_for_all_partitions` into one that is marked as unfiltered.

    :return: ``None`` if the answer holds no partitions.
    """
    head = read_head(answer)
    if head.kind != REPLY:
        return None
    for field in read_fields(answer, head.body):
        if field.number:
            return None
        for inner in read_fields(answer, field.start):
            if inner.number == 1:
                partitions = field_bytes(1, inner.ttype, answer[inner.start : inner.end])
                value = partitions + field_bytes(2, BOOL, b"\1") + bytes([STOP])
                begin = head_bytes(BY_EXPRESSION, REPLY, head.sequence_id)
                return begin + field_bytes(0, STRUCT, value) + bytes([STOP])
    return None


def _fault_number(method: str, other: str, number: int) -> int:
    """Return the id of the old method's field for an exception of the newer method.

    Field 1 of every Hive exception is its message, so ``MetaException`` can stand for an undeclared one.
    """
    raised = message_types(other)[1].thrift_spec.get(number)
    declared = {field[2]: key for key, field in message_types(method)[1].thrift_spec.items() if key}
    if raised is None:
        raise MalformedMessage(f"an exception {number} that {other} does not have")
    return declared.get(raised[2], declared[types.MetaException])


def _where(database: str) -> dict[str, Any]:
    catalog = catalog_of(database)
    return {"catName": catalog, "dbName": database if catalog is None else database.partition("#")[2]}

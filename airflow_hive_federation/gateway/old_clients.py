"""Translates old clients' calls into methods that newer metastores have, and translates the answers back.

Hive 4 dropped ``get_table`` and ``get_table_objects_by_name`` (HIVE-26537). The gateway calls the ``_req``
method of each instead. Its answer holds the same structs, whose bytes are copied without decoding, so that
nothing is lost.

Hive 4 creates an ACID table only for a client that sends the capability to write one
(``MetastoreDefaultTransformer``), and the requests of Hive 3.1 have no field for capabilities. If the
gateway's configuration names capabilities for such clients, the gateway creates their tables by
``create_table_req``.

Hive 2.3 and 3.1 select partitions by serialized expressions, which they write without the class of the root
(``SerializationUtilities.serializeExpressionToKryo``). A metastore of Hive 4 reads such bytes by another
version of Kryo (``PartitionExpressionForMetastore.deserializeExpr``). The result is an object with fields of
wrong classes: the metastore answers with an error, closes the connection, or its JVM ends with a segmentation
fault. So the gateway never sends them to Hive 4. Those clients accept all partitions as the answer if it is
marked as unfiltered, for they filter the rows anyway (``PartitionPruner``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
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
_DROP = "drop_partitions_req"
_WHOLE = "get_partitions_req"
#: A method that came to Hive with expressions that name the class of their root (HIVE-22957, HIVE-23216).
_OF_HIVE_4 = "get_partitions_spec_by_expr"
#: Calls that may hold expressions; older clients have only two of them, but others may pass theirs on.
WITH_EXPRESSIONS = frozenset({BY_EXPRESSION, _DROP, _OF_HIVE_4, "get_partition_names_req"})
#: Kryo's mark of a written object or of a class by its name, which both kinds of expressions begin with.
_KRYO = b"\1"
_ROOT_CLASS = b"\1\0org.apache.hadoop.hive.ql.plan."
_NO_FILTER = b"\xff"


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


class Capability(StrEnum):
    """Hive's names of clients' capabilities (``MetastoreDefaultTransformer`` of Hive 4.2).

    The metastore compares them letter by letter, and passes over a name that it does not know.
    """

    ACCEPTS_UNMODIFIED_METADATA = "ACCEPTS_UNMODIFIED_METADATA"
    CONNECTORREAD = "CONNECTORREAD"
    CONNECTORWRITE = "CONNECTORWRITE"
    EXTERNAL_TABLES_ONLY = "EXTERNAL_TABLES_ONLY"
    EXTREAD = "EXTREAD"
    EXTWRITE = "EXTWRITE"
    HIVEBUCKET2 = "HIVEBUCKET2"
    HIVECACHEINVALIDATE = "HIVECACHEINVALIDATE"
    HIVEFULLACIDREAD = "HIVEFULLACIDREAD"
    HIVEFULLACIDWRITE = "HIVEFULLACIDWRITE"
    HIVEMANAGEDINSERTREAD = "HIVEMANAGEDINSERTREAD"
    HIVEMANAGEDINSERTWRITE = "HIVEMANAGEDINSERTWRITE"
    HIVEMANAGESTATS = "HIVEMANAGESTATS"
    HIVEMQT = "HIVEMQT"
    HIVEONLYMQTWRITE = "HIVEONLYMQTWRITE"
    HIVESQL = "HIVESQL"
    MANAGE_RAW_METADATA = "MANAGE_RAW_METADATA"


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


def has_older_expression(method: str, message: bytes) -> bool:
    """Return whether a call selects partitions by an expression as Hive 2.3 and 3.1 write it.

    :param method: one of :data:`WITH_EXPRESSIONS`.
    :param message: a call that the metastore reads in the same way (:func:`.check_unambiguous`).
    :raises WireFormatError: the call's arguments cannot be read.
    """
    request = _request(method, message)
    if request is None:
        # The metastore answers what such a call lacks.
        return False
    if method == _DROP:
        written = [part.expr for part in (request.parts and request.parts.exprs) or ()]
    else:
        written = [request.expr]
    return any(
        expression is not None and expression.startswith(_KRYO) and not expression.startswith(_ROOT_CLASS)
        for expression in written
    )


def probe_of_hive_4(method: str, message: bytes) -> bytes:
    """Return a call of a method that only Hive 4 and later have, for a table that cannot exist.

    :param method: one of :data:`WITH_EXPRESSIONS`; its call names the database, by which a router between the
        gateway and the metastore finds the metastore.
    :raises WireFormatError: the call's arguments cannot be read.
    """
    called = _request(method, message)
    request = types.PartitionsByExprRequest(
        catName=called.catName, dbName=called.dbName, tblName="", expr=_NO_FILTER
    )
    body = encode(message_types(_OF_HIVE_4)[0](req=request))
    return head_bytes(_OF_HIVE_4, CALL, read_head(message).sequence_id) + body


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

    :param message: a call of :data:`BY_EXPRESSION`.
    :return: ``None`` if the caller limits the number of partitions: the first ones might not match.
    :raises WireFormatError: the call's arguments cannot be read.
    """
    head = read_head(message)
    request = _request(BY_EXPRESSION, message)
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


def _request(method: str, message: bytes) -> Any:
    arguments: Any = from_bytes(message_types(method)[0], message[read_head(message).body :])
    return arguments.req


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

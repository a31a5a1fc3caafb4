"""Texts of views in the answers of a federation's members, with the names that clients know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.gateway.messages import REPLY, head_bytes, read_head
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import encode
from airflow_hive_federation.metastore.wire import from_bytes

#: Writes the text of a view with other names of databases, each of which the function gives. It raises
#: ValueError if it cannot tell what the text means.
ViewText = Callable[[str, Callable[[str], str]], str]

_FIELDS = ("viewOriginalText", "viewExpandedText")
_FIND: dict[str, Callable[[Any], list[Any]]] = {
    "get_table": lambda result: [result.success],
    "get_table_objects_by_name": lambda result: result.success,
    "get_table_objects_by_name_req": lambda result: result.success.tables,
    "get_table_req": lambda result: [result.success.table],
}


def with_view_names(
    method: str, answer: bytes, outside: Callable[[str], str], rewrite: ViewText | None
) -> bytes:
    """Return the answer with the clients' names in the texts of views.

    An answer without views is returned as it is, undecoded.

    :param outside: the clients' name of a database.
    :param rewrite: writes a text anew; ``None`` cannot.
    :raises GatewayError: a view's text cannot be rewritten: its tables would be others, or none.
    """
    if method not in _FIND or b"VIRTUAL_VIEW" not in answer:
        return answer
    head = read_head(answer)
    if head.kind != REPLY:
        return answer
    result: Any = from_bytes(message_types(method)[1], answer[head.body :])
    if result.set_fields().get("success") is None:
        return answer
    for table in _FIND[method](result) or []:
        if table is not None and table.tableType == "VIRTUAL_VIEW":
            _rewrite(table, outside, rewrite)
    return head_bytes(method, head.kind, head.sequence_id) + encode(result)


def _rewrite(table: types.Table, outside: Callable[[str], str], rewrite: ViewText | None) -> None:
    for field in _FIELDS:
        text = getattr(table, field)
        if not text:
            continue
        try:
            if rewrite is None:
                raise ValueError("views are not rewritten here")
            setattr(table, field, rewrite(text, outside))
        except ValueError as error:
            raise refused(
                Status.FAILED,
                f"View {table.dbName}.{table.tableName} cannot be read through the federation: {error}",
                remedy="Read the tables below it, or ask its own metastore.",
            ) from error

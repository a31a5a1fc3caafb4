"""Parses the texts of views in an owner's answer, and writes local names of databases into them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_hive_federation.gateway.federation.owners import Naming
from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.gateway.messages import REPLY, head_bytes, read_head
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import encode
from airflow_hive_federation.metastore.struct import Struct
from airflow_hive_federation.metastore.wire import from_bytes
from airflow_hive_federation.model.view_text import Renaming, UnreadableViewError
from airflow_hive_federation.model.views import read_by_view, rename_in_view

_KINDS = ("VIRTUAL_VIEW", "MATERIALIZED_VIEW")


def rename_views(method: str, answer: bytes, naming: Naming) -> bytes:
    """Return an answer whose views name the owner's databases by their local names.

    :raises GatewayError: a view reads a database without a local name, or a reliable rewrite of its text is
        not possible.
    """
    # Few answers have views: the others are returned without decoding.
    if not any(kind.encode() in answer for kind in _KINDS):
        return answer
    head = read_head(answer)
    decoded = from_bytes(message_types(method)[1], answer[head.body :])
    views = [table for table in _tables(decoded) if table.tableType in _KINDS and _has_text(table)]
    for view in views:
        _rename(view, naming)
    return head_bytes(method, REPLY, head.sequence_id) + encode(decoded) if views else answer


def defines_view(arguments: Struct) -> bool:
    """Return whether the arguments of a call contain a view."""
    return any(table.tableType in _KINDS or _has_text(table) for table in _tables(arguments))


def _rename(view: types.Table, naming: Naming) -> None:
    name = f"{view.dbName}.{view.tableName}"
    try:
        databases = {}
        sources = read_by_view(view)
        for catalog, table in sorted(sources.elsewhere):
            raise UnreadableViewError(
                f"it reads {table} of the catalog {catalog}, which the gateway does not know; "
                "create the view anew with names of two parts"
            )
        for database, source in sorted(sources.tables | sources.functions):
            local = naming.database(database)
            if local is None:
                raise UnreadableViewError(
                    f"it reads {database}.{source}, whose database has no local name; give the gateway one"
                )
            databases[database] = local
        _rename_all(
            view, {remote_name: local for remote_name, local in databases.items() if remote_name != local}
        )
    except UnreadableViewError as error:
        raise refused(
            Status.FAILED,
            f"View {name} of metastore {naming.owner} cannot be given local names: {error}.",
            remedy="Read it at the metastore that owns it, or configure all databases that it reads.",
        ) from error


def _rename_all(view: types.Table, names: dict[str, str]) -> None:
    # Rename in two steps if the new name of one database is the old name of another.
    steps: list[tuple[str, str]] = []
    if set(names) & set(names.values()):
        between = {
            remote_name: f"hive_federation_between_{number}" for number, remote_name in enumerate(names)
        }
        steps = [*between.items(), *((between[remote_name], local) for remote_name, local in names.items())]
    for remote_name, local in steps or list(names.items()):
        rename_in_view(view, Renaming(source_database=remote_name, target_database=local))


def _has_text(table: types.Table) -> bool:
    return bool(table.viewExpandedText or table.viewOriginalText)


def _tables(value: object) -> Iterator[Any]:
    if isinstance(value, types.Table):
        yield value
    elif isinstance(value, Struct):
        for item in value.set_fields().values():
            yield from _tables(item)
    elif isinstance(value, list) and value and isinstance(value[0], Struct):
        for item in value:
            yield from _tables(item)

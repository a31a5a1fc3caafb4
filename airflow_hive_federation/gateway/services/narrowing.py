"""Keeps fields that Hive's proto lacks when a client of Hive's own gRPC service changes a definition.

For example, a client reads a table, changes a comment and sends the table back, and its message has no field
for the table's owner. So before a change, the gateway reads the present definition and copies the values of
fields that the message lacks. In lists and maps, it cannot match old elements with new ones, and refuses the
change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.gateway.services.layout import STRUCT
from airflow_hive_federation.gateway.services.matching import match
from airflow_hive_federation.gateway.services.pools import hives
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.struct import Struct

Ask = Callable[..., Any]


def keep(method: str, arguments: Struct, ask: Ask) -> None:
    """Fill in the values that a change would remove, because its message lacks their fields.

    :param method: the method that makes the change.
    :param arguments: arguments of the method, made from a message of Hive's proto; they are changed in place.
    :param ask: calls a method of the metastore and returns its answer.
    :raises GatewayError: the change would remove a value that cannot be copied.
    :raises Fault: the metastore answered with this exception, for instance about a missing table.
    """
    if (changes := _CHANGES.get(method)) is None:
        return
    for message, new, read in changes(arguments, ask):
        if new is not None and (old := read()) is not None:
            carry_over(hives().kind(message).DESCRIPTOR, new, old)


def carry_over(described: Any, new: Struct, old: Struct, path: str = "") -> None:
    """Copy values from the present definition that the message of the new one cannot hold.

    :param described: descriptor of the message that ``new`` was made from.
    :param new: the new definition, changed in place.
    :param old: the present definition.
    :param path: names of the fields above, for errors.
    :raises GatewayError: a list or map holds such a value.
    """
    matched = match(described, type(new).thrift_spec)
    for name in matched.only_struct:
        if (value := getattr(old, name, None)) is not None:
            setattr(new, name, value)
    for number, _, field in matched.pairs:
        name, before = field[1], getattr(old, field[1], None)
        below = described.fields_by_number[number].message_type
        if before is None or below is None:
            continue
        if field[0] != STRUCT:
            lost = sorted(set(_lost_in(below, before)))
            if lost:
                raise refused(
                    Status.INVALID,
                    f"The change would take {', '.join(f'{path}{name}.{key}' for key in lost)} away, which "
                    "Hive's own proto has no field for.",
                    remedy="Make it by the gateway's own service or by Thrift.",
                )
        elif (after := getattr(new, name, None)) is not None:
            carry_over(below, after, before, f"{path}{name}.")


def _lost_in(described: Any, values: Mapping[object, object] | Iterable[object]) -> Iterator[str]:
    """Yield the names of fields that are set within a container and that its messages lack."""
    for value in values.values() if isinstance(values, Mapping) else values:
        yield from _lost(described, value)


def _lost(described: Any, value: object) -> Iterator[str]:
    if not isinstance(value, Struct):
        return
    described = _innermost(described)
    matched = match(described, type(value).thrift_spec)
    yield from (name for name in matched.only_struct if getattr(value, name, None) is not None)
    for number, _, field in matched.pairs:
        before, below = getattr(value, field[1], None), described.fields_by_number[number].message_type
        if before is None or below is None:
            continue
        if field[0] == STRUCT:
            yield from (f"{field[1]}.{lost_name}" for lost_name in _lost(below, before))
        else:
            yield from (f"{field[1]}.{lost_name}" for lost_name in _lost_in(below, before))


def _innermost(described: Any) -> object:
    """Return the descriptor of a map entry's value, or the given descriptor if it is no map entry."""
    value = described.fields_by_name.get("value")
    if value is not None and "key" in described.fields_by_name and value.message_type is not None:
        return value.message_type
    return described


#: Per definition of a call: its message in Hive's proto, the new definition, and a reader of the present one.
Definitions = Iterator[tuple[str, Struct | None, Callable[[], Struct | None]]]


def _table(arguments: Any, ask: Ask) -> Definitions:
    request = arguments.req
    lookup = types.GetTableRequest(catName=request.catName, dbName=request.dbName, tblName=request.tableName)
    yield "Table", request.table, lambda: ask("get_table_req", lookup).table


def _partition(arguments: Any, ask: Ask) -> Definitions:
    new = arguments.new_part
    values = list((new and new.values) or ())
    yield "Partition", new, lambda: ask("get_partition", arguments.db_name, arguments.tbl_name, values)


def _renamed(arguments: Any, ask: Ask) -> Definitions:
    request = arguments.req
    yield "Partition", request.newPart, _reader(ask, request, request.partVals)


def _partitions(arguments: Any, ask: Ask) -> Definitions:
    request = arguments.req
    for new in request.partitions or ():
        yield "Partition", new, _reader(ask, request, new.values)


def _reader(ask: Ask, request: Any, values: Iterable[str] | None) -> Callable[[], Struct | None]:
    lookup = types.GetPartitionRequest(
        catName=request.catName,
        dbName=request.dbName,
        tblName=request.tableName,
        partVals=list(values or ()),
    )
    return lambda: ask("get_partition_req", lookup).partition


def _catalog(arguments: Any, ask: Ask) -> Definitions:
    request = arguments.rqst
    lookup = types.GetCatalogRequest(name=request.name)
    yield "Catalog", request.newCat, lambda: ask("get_catalog", lookup).catalog


_CHANGES: dict[str, Callable[[Struct, Ask], Definitions]] = {
    "alter_table_req": _table,
    "alter_partition": _partition,
    "alter_partition_with_environment_context": _partition,
    "alter_partitions_req": _partitions,
    "rename_partition_req": _renamed,
    "alter_catalog": _catalog,
}

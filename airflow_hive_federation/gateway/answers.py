"""Rewrites lists in answers: leaves out names that a caller may not see, and renames the other databases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from airflow_hive_federation.gateway.messages import (
    LIST,
    REPLY,
    STRING,
    STRUCT,
    Field,
    Walk,
    read_fields,
    read_head,
    text_bytes,
)
from airflow_hive_federation.gateway.names import (
    Reference,
    bare_database,
    catalogs,
    identifier,
    references,
    renamed,
)
from airflow_hive_federation.gateway.refusals import Status, refused
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.struct import Struct

#: Returns whether the caller may see a database, or a table of it.
Keep = Callable[[str, str | None], bool]
#: Returns the name to write for a database.
Rename = Callable[[str], str]


@dataclass(frozen=True)
class Listing:
    """The position of the list in a method's answer, and the type of its elements.

    :param path: ids of the fields that lead to the list.
    :param element: struct of the elements; ``None`` if they are names.
    :param of_tables: the names are those of tables of the database that the call names.
    :param name_field: id of an element's field that holds its name; ``None`` if the element is the name.
    :param own_fields: ids of the fields with an element's own database and table, if other names in it are
        part of a definition that whoever may read the element may read, too.
    """

    path: tuple[int, ...] = (0,)
    element: type[Struct] | None = None
    of_tables: bool = False
    name_field: int | None = None
    own_fields: tuple[int, int] | None = None


#: Ids of ``Table.dbName`` and ``Table.tableName``. A materialized view also names the tables that it reads.
_OF_TABLE = (2, 1)

LISTINGS: dict[str, Listing] = {
    "get_all_databases": Listing(),
    "get_all_functions": Listing((0, 1), types.Function),
    "get_all_write_event_info": Listing(element=types.WriteEventInfo),
    "get_all_table_constraints": Listing((0, 1, 2), types.SQLForeignKey),
    "get_all_tables": Listing(of_tables=True),
    "get_databases": Listing(),
    "get_databases_req": Listing((0, 1), types.Database),
    "get_foreign_keys": Listing((0, 1), types.SQLForeignKey),
    "get_materialized_views_for_rewriting": Listing(of_tables=True),
    "get_next_notification": Listing((0, 1), types.NotificationEvent),
    "get_table_meta": Listing(element=types.TableMeta),
    "get_table_names_by_filter": Listing(of_tables=True),
    "get_table_objects_by_name": Listing(element=types.Table, own_fields=_OF_TABLE),
    "get_table_objects_by_name_req": Listing((0, 1), types.Table, own_fields=_OF_TABLE),
    "get_tables": Listing(of_tables=True),
    "get_tables_by_type": Listing(of_tables=True),
    "get_tables_ext": Listing(of_tables=True, name_field=1),
    "list_privileges": Listing(element=types.HiveObjectPrivilege),
    "show_compact": Listing((0, 1), types.ShowCompactResponseElement),
    "show_locks": Listing((0, 1), types.ShowLocksResponseElement),
}


def filtered(
    method: str,
    answer: bytes,
    named: Sequence[Reference],
    keep: Keep,
    most: int = 0,
    *,
    serves: Callable[[str], bool] = lambda _name: True,
) -> bytes:
    """Return the answer without the elements of its list that ``keep`` rejects, or that other catalogs have.

    A notification event without a database is left out, too: its message may name any database.

    :param named: databases and tables that the call names, under the upstream's names.
    :param most: greatest number of elements to keep, the first ones; 0 keeps all.
    :param serves: returns whether rules are about the databases of a catalog.
    :raises MalformedMessage: the message is no answer to this method.
    :raises GatewayError: the answer has tables without names.
    """
    listing = LISTINGS[method]
    if (place := _find(answer, listing.path)) is None:
        return answer
    start, end = place
    ttype, kept = _element_type(answer, start, listing), []
    for first, last in elements(answer, start):
        if _is_of_catalog(answer, first, listing, serves) and _is_shown(
            answer, (first, last), listing, named, keep
        ):
            kept.append(answer[first:last])
            if len(kept) == most:
                break
    return b"".join([answer[:start], bytes([ttype]), len(kept).to_bytes(4, "big"), *kept, answer[end:]])


def _is_of_catalog(answer: bytes, start: int, listing: Listing, serves: Callable[[str], bool]) -> bool:
    # The catalogs of the other lists are those of the call.
    if listing.element is None or listing.own_fields is not None:
        return True
    return all(serves(name.name) for name in catalogs(answer, start, listing.element))


def _is_shown(
    answer: bytes, bounds: tuple[int, int], listing: Listing, named: Sequence[Reference], keep: Keep
) -> bool:
    if listing.own_fields is not None:
        return _is_own_shown(answer, bounds[0], listing.own_fields, named, keep)
    if listing.element is not None:
        mentions = references(answer, bounds[0], listing.element)
        return bool(mentions) and all(
            bool(reference.database) and keep(reference.database, reference.table) for reference in mentions
        )
    name = _name(answer, *bounds, listing.name_field)
    database = named[0].database if named else ""
    return keep(database, name) if listing.of_tables else keep(name, None)


def _is_own_shown(
    answer: bytes, start: int, fields: tuple[int, int], named: Sequence[Reference], keep: Keep
) -> bool:
    # A client may request some fields of the tables only. The call names their one database in any case.
    database, table = (_text(answer, start, number) for number in fields)
    names = {bare_database(database)} if database else {reference.database for reference in named}
    if not table and any(reference.table is None for reference in named):
        raise refused(
            Status.INVALID,
            "The answer has tables without their names, and some of them may be hidden.",
            remedy="Request the field tableName, too, or name the tables.",
        )
    return bool(names) and all(keep(name, identifier(table) if table else None) for name in names)


def _text(answer: bytes, start: int, number: int) -> str:
    field = only_field(answer, start, number)
    return "" if field is None else answer[field.start + 4 : field.end].decode(errors="replace")


def bounds_of(method: str, answer: bytes) -> list[tuple[int, int]]:
    """Return the start and end of each element of an answer's list; none if it has no list.

    :raises MalformedMessage: the message is no answer to this method.
    """
    place = _find(answer, LISTINGS[method].path)
    return [] if place is None else elements(answer, place[0])


def with_names(method: str, answer: bytes, rename: Rename) -> bytes:
    """Return the answer with the databases renamed.

    :raises MalformedMessage: the message is no answer to this method.
    """
    head = read_head(answer)
    if head.kind != REPLY:
        return answer
    listing = LISTINGS.get(method)
    if listing is None or listing.element is not None:
        mentions = references(answer, head.body, message_types(method)[1])
        return renamed(answer, mentions, rename)
    if listing.of_tables or (place := _find(answer, listing.path)) is None:
        return answer
    start, end = place
    _element_type(answer, start, listing)
    data = b"".join(_renamed(answer[first:last], rename) for first, last in elements(answer, start))
    return answer[: start + 5] + data + answer[end:]


def _renamed(text: bytes, rename: Rename) -> bytes:
    try:
        return text_bytes(rename(text[4:].decode().lower()))
    except UnicodeDecodeError:
        # No database of the gateway has such a name: the text stays as it is.
        return text


def _element_type(answer: bytes, start: int, listing: Listing) -> int:
    """Return the type of a list's elements; reject an unexpected type, which would be misread as names."""
    expected = STRING if listing.element is None and listing.name_field is None else STRUCT
    if (ttype := answer[start]) != expected and answer[start + 1 : start + 5] != b"\0\0\0\0":
        raise MalformedMessage(f"a list of elements of the type {ttype}, not {expected}")
    return ttype


def elements(data: bytes, position: int) -> list[tuple[int, int]]:
    """Return the start and end of each element of the list at a position.

    :raises MalformedMessage: the position holds no list.
    """
    walk = Walk(_nothing).over(data)
    walk.need(position, 5)
    ttype, size = data[position], int.from_bytes(data[position + 1 : position + 5], "big", signed=True)
    position, bounds = position + 5, []
    for _ in range(size):
        end = walk.need(walk.value(position, ttype, 0), 0)
        bounds.append((position, end))
        position = end
    return bounds


def _find(answer: bytes, path: tuple[int, ...]) -> tuple[int, int] | None:
    head = read_head(answer)
    if head.kind != REPLY:
        return None
    position, end = head.body, 0
    for depth, number in enumerate(path, 1):
        if (field := only_field(answer, position, number)) is None:
            return None
        expected = LIST if depth == len(path) else STRUCT
        if field.ttype != expected:
            # Cut as a list, another value would leave the client bytes that are no message.
            raise MalformedMessage(f"a field of the type {field.ttype}, not {expected}")
        position, end = field.start, field.end
    return position, end


def only_field(data: bytes, position: int, number: int) -> Field | None:
    """Return the field of that id in a struct; reject a second one, of which readers would take the last.

    :raises MalformedMessage: the bytes at the position are no struct, or it has several such fields.
    """
    fields = [field for field in read_fields(data, position) if field.number == number]
    if len(fields) > 1:
        raise MalformedMessage(f"the field {number} comes {len(fields)} times")
    return fields[0] if fields else None


def _name(answer: bytes, start: int, end: int, field: int | None) -> str:
    """Return the name of a list's element."""
    if field is not None:
        return _text(answer, start, field)
    return answer[start + 4 : end].decode(errors="replace")


def _nothing(_size: int) -> bytes:
    raise MalformedMessage("it ends too soon")

"""Finds the databases and tables that a Thrift message names, without decoding the rest of the message.

Hive's interface definition shows the fields that hold such names. Rules, allow-lists, aliases and routing all
use this module, so that none of them overlooks a database or table that another one sees.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, cast

from airflow_hive_federation.gateway.messages import I64, LIST, MAP, SET, STRING, STRUCT, Walk, text_bytes
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.struct import Struct

_DATABASES_WORDS = """
    database databaseName db db_name dbName dbname dest_db fktable_db foreign_db_name oldDbName
    parent_db_name pktable_db source_db table_db
"""
_DATABASES = frozenset(_DATABASES_WORDS.split())
_TABLES_WORDS = """
    dest_table_name fktable_name foreign_tbl_name parent_tbl_name pktable_name source_table_name
    table table_name tableName tablename tableNames tbl_name tbl_names tbName tblName tblname tblNames
"""
_TABLES = frozenset(_TABLES_WORDS.split())
#: Fields with ``database.table`` as one text; a list of valid write ids has a colon and more behind it.
_QUALIFIED = frozenset(
    {"fullTableName", "fullTableNames", "tablesUsed", "validWriteIdList", "validWriteIdlist"}
)
#: Maps whose keys are ``database.table``.
_QUALIFIED_KEYS = frozenset({"writeIds"})
#: Fields and keys of which Hive reads the first two parts, and no catalog (``TxnUtils.getDbTableName``, and
#: ``ObjectStore.convertToSourceTable`` of ``tablesUsed``).
_OF_TWO_PARTS = frozenset({"fullTableName", "fullTableNames", "tablesUsed"}) | _QUALIFIED_KEYS
#: Structs of whose table Hive reads the part before the first dot (``HMSHandler``:
#: ``get_fields_with_environment_context`` and ``get_schema_with_environment_context``).
_CUT_AT_DOTS = frozenset(
    {
        "GetFieldsRequest",
        "GetSchemaRequest",
        "get_fields_args",
        "get_fields_with_environment_context_args",
        "get_schema_args",
        "get_schema_with_environment_context_args",
    }
)
#: Structs whose field ``name`` is a database.
_NAME_IS_DATABASE = frozenset(
    {"Database", "DropDatabaseRequest", "GetDatabaseRequest", "drop_database_args", "get_database_args"}
)
#: Structs whose field of that name is a table; an ``objectName`` without a database is something else.
_TABLE_IN = {
    "name": frozenset(
        {"AppendPartitionsRequest", "drop_table_args", "drop_table_with_environment_context_args"}
    ),
    "objectName": frozenset({"HiveObjectRef"}),
}
#: Fields that hold a catalog, and structs whose field ``name`` is one.
_CATALOGS = frozenset({"cat_name", "catName", "catalog", "catalogName"})
_NAME_IS_CATALOG = frozenset({"AlterCatalogRequest", "Catalog", "DropCatalogRequest", "GetCatalogRequest"})
#: Arguments with patterns of databases, which may begin with a catalog as names of databases do.
_PATTERNS = {"get_databases_args": "pattern", "get_table_meta_args": "db_patterns"}
#: Prefixes that a database's field and its table's field share in structs that name several databases.
_PAIRS = ("dest_", "fktable_", "foreign_", "parent_", "pktable_", "source_")

#: Roles of fields that :func:`references` and :func:`catalogs` look for.
_OF_REFERENCES = frozenset({"database", "qualified"})
_OF_CATALOGS = _OF_REFERENCES | {"catalog", "pattern"}
#: Parts of ``catalog.database.table``.
_QUALIFIED_PARTS = 3
_TRIMMED = "".join(map(chr, range(33)))


@dataclass(frozen=True, slots=True)
class Text:
    """A string in a message.

    :param value: the string.
    :param start: position of the string's length, which precedes the string.
    :param end: position behind the string.
    """

    value: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Reference:
    """A database that a message names, alone or with a table.

    :param database: lower-case name, without a catalog.
    :param table: lower-case name; ``None`` for the database itself, or all of its tables.
    :param text: the string that names the database.
    :param qualified: ``text`` is ``database.table``.
    :param table_text: the string that names the table, if it is another one than ``text``.
    """

    database: str
    table: str | None
    text: Text
    qualified: bool = False
    table_text: Text | None = None


class CatalogForm(StrEnum):
    """The way in which a string names a catalog."""

    ALONE = "catalog"
    BEFORE_DATABASE = "@catalog#database"
    QUALIFIED = "catalog.database.table"


@dataclass(frozen=True, slots=True)
class CatalogName:
    """A catalog that a message names.

    :param name: the catalog, in the message's own spelling.
    :param text: the string that names it.
    :param form: the string's form.
    """

    name: str
    text: Text
    form: CatalogForm

    def renamed(self, name: str) -> str:
        """Return the string with another catalog."""
        if self.form is CatalogForm.ALONE:
            return name
        if self.form is CatalogForm.BEFORE_DATABASE:
            return f"@{name}#{self.text.value.partition('#')[2]}"
        return name + self.text.value[len(self.name) :]


def references(data: bytes, position: int, kind: type[Struct]) -> list[Reference]:
    """Return the databases and tables that a struct names.

    :param position: position of the struct's first byte.
    :raises MalformedMessage: the bytes are no such struct.
    """
    mentions: list[Reference] = []
    if _names(kind):
        _Finder(data, mentions).struct(position, kind)
    return mentions


def catalogs(data: bytes, position: int, kind: type[Struct]) -> list[CatalogName]:
    """Return the catalogs that a struct names, each as often as it names it.

    :param position: position of the struct's first byte.
    :raises MalformedMessage: the bytes are no such struct.
    """
    names: list[CatalogName] = []
    if _names(kind, _OF_CATALOGS):
        _Finder(data, [], names).struct(position, kind)
    return names


def with_catalogs(data: bytes, names: Iterable[tuple[CatalogName, str]]) -> bytes:
    """Return the message with the catalogs renamed.

    :param names: each name of :func:`catalogs` that changes, with the catalog to write in its place.
    """
    return _edited(
        data, {former.text.start: (former.text.end, former.renamed(name)) for former, name in names}
    )


def renamed(data: bytes, mentions: Sequence[Reference], rename: Callable[[str], str]) -> bytes:
    """Return the message with the databases renamed.

    :param rename: takes a lower-case name, and returns the name to write, which may be the same.
    """
    return replaced(
        data, [(reference, rename(reference.database), reference.table) for reference in mentions]
    )


def replaced(data: bytes, names: Iterable[tuple[Reference, str, str | None]]) -> bytes:
    """Return the message with the databases and tables renamed.

    :param names: each reference, with the database and the table to write in its place.
    """
    edits: dict[int, tuple[int, str]] = {}
    for reference, database, table in names:
        # Several references share one text if a database has several tables: the position is the key.
        if reference.qualified and (database, table) != (reference.database, reference.table):
            edits[reference.text.start] = (
                reference.text.end,
                _qualified_text(reference.text.value, database, table or ""),
            )
        elif not reference.qualified and database != reference.database:
            before, mark, _ = reference.text.value.rpartition("#")
            edits[reference.text.start] = reference.text.end, f"{before}{mark}{database}"
        if reference.table_text is not None and table != reference.table:
            edits[reference.table_text.start] = reference.table_text.end, table or ""
    return _edited(data, edits)


def _edited(data: bytes, edits: Mapping[int, tuple[int, str]]) -> bytes:
    """Return the message with other strings.

    :param edits: start of each string, with its end and the string to write in its place.
    """
    parts: list[bytes] = []
    copied = 0
    for start, (end, text) in sorted(edits.items()):
        parts += [data[copied:start], text_bytes(text)]
        copied = end
    return b"".join([*parts, data[copied:]]) if parts else data


def bare_database(text: str) -> str:
    """Return the database of ``@catalog#database``, as ``MetaStoreUtils.parseDbName`` reads it."""
    if text.startswith("@"):
        text = text.partition("#")[2]
        # In Hive, ``!`` is an empty name, which means every database.
        text = "" if text == "!" else text
    return identifier(text)


def identifier(text: str) -> str:
    """Return a name as the metastore looks it up: trimmed, in lower case (Hive's ``normalizeIdentifier``).

    Java's ``trim()`` removes every character up to the blank. If rules trimmed fewer characters, a caller
    could evade them by adding one to a name.
    """
    return text.strip(_TRIMMED).lower()


def catalog_of(text: str) -> str | None:
    """Return the catalog of ``@catalog#database``."""
    return text[1:].partition("#")[0] if text.startswith("@") else None


def _qualified_text(text: str, database: str, table: str) -> str:
    name, colon, suffix = text.partition(":")
    catalog = name.split(".")[:-2]
    return ".".join([*catalog, database, table]) + colon + suffix


class _Finder:
    def __init__(
        self, data: bytes, mentions: list[Reference], catalog_names: list[CatalogName] | None = None
    ) -> None:
        self._data = data
        self._walk = Walk(_nothing).over(data)
        self._mentions = mentions
        self._catalog_names = catalog_names
        self._wanted = _OF_REFERENCES if catalog_names is None else _OF_CATALOGS

    def struct(self, position: int, kind: type[Struct]) -> int:
        data, walk, spec = self._data, self._walk, kind.thrift_spec
        databases: list[tuple[str, Text]] = []
        tables: list[tuple[str, Text]] = []
        while True:
            walk.need(position, 1)
            if (ttype := data[position]) == 0:
                break
            walk.need(position, 3)
            number = int.from_bytes(data[position + 1 : position + 3], "big", signed=True)
            start = position + 3
            field = spec.get(number)
            if field is None or field[0] != ttype:
                position = walk.value(start, ttype, 0)
                continue
            if (role := _role(kind, field[1])) is None:
                position = self._nested(start, ttype, field[2] if len(field) == 4 else None)
                continue
            texts, position = self._texts(start, ttype)
            if self._catalog_names is not None:
                named = (_catalog_name(role, text) for text in texts)
                self._catalog_names += [name for name in named if name is not None]
            if role == "qualified":
                if field[1] in _OF_TWO_PARTS:
                    _refuse_more_parts(texts)
                self._mentions += [_qualified(text) for text in texts]
            elif role in {"database", "table"}:
                (databases if role == "database" else tables).extend((field[1], text) for text in texts)
        self._pair(databases, tables, kind.__name__ in _CUT_AT_DOTS)
        return position + 1

    def _nested(self, position: int, ttype: int, inner: Any) -> int:
        if ttype == STRUCT and inner is not None and _names(inner, self._wanted):
            return self.struct(position, inner)
        if ttype in {LIST, SET} and _names_within(inner, self._wanted):
            return self._list(position, inner)
        end = self._walk.value(position, ttype, 0)
        return self._walk.need(end, 0)

    def _list(self, position: int, inner: object) -> int:
        on_wire, size, position = self._data[position], *self._size(position + 1)
        ttype, deeper = inner if isinstance(inner, tuple) else (inner, None)
        if size and on_wire != ttype:
            raise MalformedMessage(f"a list of values of type {on_wire}, not {ttype}")
        for _ in range(size):
            position = self._nested(position, ttype, deeper)
        return position

    def _texts(self, position: int, ttype: int) -> tuple[list[Text], int]:
        if ttype == STRING:
            text = self._text(position)
            return [text], text.end
        if ttype == MAP:
            return self._keys(position)
        on_wire, size, position = self._data[position], *self._size(position + 1)
        if size and on_wire != STRING:
            if ttype == LIST:
                # Java's generated code reads texts, whatever type the list declares.
                raise MalformedMessage(f"a list of values of type {on_wire}, not {STRING}")
            # ``CreationMetadata.tablesUsed`` of Hive 4 has strings; elements of other types hold no names.
            for _ in range(size):
                position = self._walk.value(position, on_wire, 0)
            return [], self._walk.need(position, 0)
        texts = []
        for _ in range(size):
            texts.append(self._text(position))
            position = texts[-1].end
        return texts, position

    def _keys(self, position: int) -> tuple[list[Text], int]:
        size, start = self._size(position + 2)
        key_type, value_type = self._data[position], self._data[position + 1]
        if size and (key_type, value_type) != (STRING, I64):
            # Java's generated code reads texts and numbers of 8 bytes, whatever types the map declares.
            raise MalformedMessage(f"a map of types {key_type} and {value_type}, not {STRING} and {I64}")
        texts = []
        for _ in range(size):
            texts.append(self._text(start))
            start = self._walk.need(self._walk.value(texts[-1].end, value_type, 0), 0)
        return texts, start

    def _text(self, position: int) -> Text:
        size, start = self._size(position)
        self._walk.need(start, size)
        try:
            return Text(self._data[start : start + size].decode(), position, start + size)
        except UnicodeDecodeError as error:
            raise MalformedMessage("a name that is no UTF-8") from error

    def _size(self, position: int) -> tuple[int, int]:
        self._walk.need(position, 4)
        size = int.from_bytes(self._data[position : position + 4], "big", signed=True)
        if size < 0:
            raise MalformedMessage(f"a length of {size}")
        return size, position + 4

    def _pair(
        self, databases: list[tuple[str, Text]], tables: list[tuple[str, Text]], cut_at_dots: bool
    ) -> None:
        for field, text in databases:
            prefix = next((pair for pair in _PAIRS if field.startswith(pair)), "")
            beside = [table for name, table in tables if _prefix(name) == prefix]
            name = bare_database(text.value)
            self._mentions += [
                Reference(
                    name,
                    identifier(table.value.partition(".")[0] if cut_at_dots else table.value),
                    text,
                    table_text=table,
                )
                for table in beside
            ] or [Reference(name, None, text)]


def _catalog_name(role: str, text: Text) -> CatalogName | None:
    if role == "catalog":
        return CatalogName(text.value, text, CatalogForm.ALONE)
    catalog = catalog_of(text.value) if "#" in text.value else None
    if role in {"database", "pattern"} and catalog is not None:
        return CatalogName(catalog, text, CatalogForm.BEFORE_DATABASE)
    if role == "qualified" and len(parts := text.value.partition(":")[0].split(".")) == _QUALIFIED_PARTS:
        return CatalogName(parts[0], text, CatalogForm.QUALIFIED)
    return None


def _prefix(field: str) -> str:
    return next((pair for pair in _PAIRS if field.startswith(pair)), "")


def _qualified(text: Text) -> Reference:
    # Hive writes ``null`` as the name of a list of write ids that belongs to no table.
    database, dot, table = text.value.partition(":")[0].rpartition(".")
    name = identifier(database.rpartition(".")[2])
    return Reference(name, identifier(table), text, qualified=bool(dot))


def _refuse_more_parts(names: Sequence[Text]) -> None:
    # The metastore takes ``db.x.t`` as table ``x`` of ``db``; a rule about ``x`` would decide about another.
    for name in names:
        if name.value.count(".") > 1:
            raise MalformedMessage(f"{name.value!r}, which has more parts than a database and a table")


def _role(kind: type[Struct], field: str) -> str | None:
    return _roles(cast("Hashable", kind)).get(field)


def _names(kind: type[Struct], wanted: frozenset[str] = _OF_REFERENCES) -> bool:
    """Return whether a struct, or a struct within it, has fields of these roles."""
    return _names_somewhere(cast("Hashable", kind), wanted)


@cache
def _roles(kind: Any) -> dict[str, str]:
    roles: dict[str, str] = {}
    for ttype, field, *_ in kind.thrift_spec.values():
        # Some requests have fields ``database`` and ``table`` that are structs.
        if ttype not in {STRING, LIST, SET, MAP}:
            continue
        if field in (_QUALIFIED_KEYS if ttype == MAP else _QUALIFIED):
            roles[field] = "qualified"
        elif field in _DATABASES or (field == "name" and kind.__name__ in _NAME_IS_DATABASE):
            roles[field] = "database"
        elif field in _TABLES or kind.__name__ in _TABLE_IN.get(field, ()):
            roles[field] = "table"
        elif field in _CATALOGS or (field == "name" and kind.__name__ in _NAME_IS_CATALOG):
            roles[field] = "catalog"
        elif _PATTERNS.get(kind.__name__) == field:
            roles[field] = "pattern"
    return roles


@cache
def _names_somewhere(kind: Any, wanted: frozenset[str]) -> bool:
    return _holds_names(kind, wanted, frozenset())


def _holds_names(kind: type[Struct], wanted: frozenset[str], above: frozenset[Any]) -> bool:
    if kind in above:
        return False
    if wanted & set(_roles(cast("Hashable", kind)).values()):
        return True
    return any(
        _holds_names(struct, wanted, above | {kind})
        for field in kind.thrift_spec.values()
        if len(field) == 4
        for struct in _structs(field[0], field[2])
    )


def _structs(ttype: int, inner: Any) -> list[type[Struct]]:
    if ttype == STRUCT:
        return [inner]
    return _parts(inner) if ttype in {LIST, SET} else []


def _parts(part: object) -> list[type[Struct]]:
    return _structs(*part) if isinstance(part, tuple) else []


def _names_within(inner: object, wanted: frozenset[str]) -> bool:
    return any(_names(struct, wanted) for struct in _parts(inner))


def _nothing(_size: int) -> bytes:
    raise MalformedMessage("it ends too soon")

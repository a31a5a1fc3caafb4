"""Checks the documents of a dump when they are read. Pure.

Digests prove that a document is unchanged. They do not prove its author, for a writer of a dump's directory
may write the manifest, too. So all names and paths are checked, whoever wrote them: none may lead out of the
directories of a table, a function or the dump itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import from_json
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.format.files import target_file_path
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.storage.filesystem import parse_location

#: A check raises a ``ValueError`` that describes the error in a value.
Check = Callable[[Any], None]

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DOTS = {"", ".", ".."}
_LEAVES = re.compile(r"\x00|\A(?:/|\Z)|(?:\A|/)\.{1,2}(?:/|\Z)")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def check_of(name: str) -> Check | None:
    """Return the check of a document, or of each of its lines, by the document's name in the dump.

    :param name: path inside the dump's directory.
    :return: ``None`` for a document from which no step takes names or paths.
    """
    folder, _, inside = name.rpartition("/")
    if folder == "tables":
        return _table_document(unquote(inside.removesuffix(".json")))
    return _BY_NAME.get(name) or _BY_FOLDER.get(folder)


def check_partition_struct(line: Mapping[str, Any]) -> None:
    """Check a partition's definition field by field; this is too slow for every read of a line.

    :raises ValueError: a field is not known, or has another type.
    """
    _struct(types.Partition)(line["partition"])


# -- values ----------------------------------------------------------------------------------------------


def _name(value: Any) -> None:
    """Check the name of a database or function, which is at most one name of a directory."""
    _text(value)
    if value in _DOTS or "/" in value or _CONTROL.search(value):
        raise ValueError(f"{value!r} is no name")


def _table_name(value: Any) -> None:
    """Check the name of a table.

    Hive allows ``/`` in such names (``MetaStoreUtils.specialCharactersInTableNames``).
    """
    _text(value)
    if _CONTROL.search(value) or not _DOTS.isdisjoint(value.split("/")):
        raise ValueError(f"{value!r} is no name of a table")


def _partition_name(value: Any) -> None:
    _text(value)
    if _CONTROL.search(value) or not all("=" in part for part in value.split("/")):
        raise ValueError(f"{value!r} is no name of a partition")


def _partition_or_table(value: Any) -> None:
    if value != "":
        _partition_name(value)


def _path(value: Any) -> None:
    """Check a path inside a directory."""
    _text(value)
    if _LEAVES.search(value):
        raise ValueError(f"the path {value!r} does not lie inside its directory")


def _path_or_none(value: Any) -> None:
    if value != "":
        _path(value)


def _location(value: Any) -> None:
    _text(value)
    if (problem := _location_problem(value)) is not None:
        raise ValueError(problem)


@lru_cache(maxsize=4096)
def _location_problem(uri: str) -> str | None:
    try:
        parse_location(uri)
    except HiveFederationError as error:
        return error.message
    # A relative path would be resolved against the working directory of the process.
    return None if ":" in uri or uri.startswith("/") else f"{uri!r} is no URI"


def _location_or_none(value: Any) -> None:
    if value is not None and value != "":
        _location(value)


def _resource(value: Any) -> None:
    """Check the URI of a function's jar or file, whose last part becomes the name of the copy."""
    _location(value)
    if value.rpartition("/")[2] in _DOTS:
        raise ValueError(f"{value!r} names no file")


def _text(value: Any) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} is no text")


def _whole(value: Any) -> None:
    # ``bool`` is a subclass of ``int``.
    if type(value) is not int:
        raise ValueError(f"{_shown(value)} is no whole number")


def _count(value: Any) -> None:
    _whole(value)
    if value < 0:
        raise ValueError(f"{value} is less than 0")


def _flag(value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is neither true nor false")


def _object(value: Any) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{_shown(value)} is no object")


def _digest(value: Any) -> None:
    _text(value)
    if not _DIGEST.fullmatch(value):
        raise ValueError(f"{value!r} is no digest")


def _write_ids(value: Any) -> None:
    if value is None:
        return
    _text(value)
    try:
        ValidWriteIds.parse(value)
    except HiveFederationError as error:
        raise ValueError(error.message) from error


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


# -- checks of compound values ---------------------------------------------------------------------------


def _fields(needed: Mapping[str, Check], **optional: Check) -> Check:
    """Make a check of the fields of an object, which may have other fields too."""

    def check(value: Any) -> None:
        _object(value)
        for name, of in needed.items():
            if name not in value:
                raise ValueError(f"it has no {name!r}")
            try:
                of(value[name])
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        for name, of in optional.items():
            if name in value:
                try:
                    of(value[name])
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from error

    return check


def _list(of: Check) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, list):
            raise ValueError(f"{_shown(value)} is no list")
        for item in value:
            of(item)

    return check


def _tuple(*parts: Check) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, list) or len(value) != len(parts):
            raise ValueError(f"{_shown(value)} is no list of {len(parts)} values")
        for check_item, item in zip(parts, value, strict=True):
            check_item(item)

    return check


def _map(key: Check, value: Check) -> Check:
    def check(found: Any) -> None:
        _object(found)
        for name, item in found.items():
            key(name)
            value(item)

    return check


def _one_of(*values: str) -> Check:
    known = frozenset(values)

    def check(value: Any) -> None:
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"{_shown(value)} is none of {', '.join(sorted(known))}")

    return check


def _or_none(of: Check) -> Check:
    def check(value: Any) -> None:
        if value is not None:
            of(value)

    return check


def _struct(kind: Any) -> Check:
    """Make a check of a struct of the metastore, with all its fields."""

    def check(value: Any) -> None:
        _object(value)
        try:
            from_json(kind, value)
        except HiveFederationError as error:
            raise ValueError(error.message) from error

    return check


def _all(*checks: Check) -> Check:
    def check(value: Any) -> None:
        for single_check in checks:
            single_check(value)

    return check


# -- the documents ---------------------------------------------------------------------------------------

_KIND = _one_of(*(kind.value for kind in TableKind))
_STORAGE = _fields({}, location=_location_or_none)
_KEYS = _list(_fields({"name": _text}))

_TABLE = _fields(
    {
        "table": _all(
            _struct(types.Table),
            _fields({"tableName": _table_name}, sd=_or_none(_STORAGE), partitionKeys=_KEYS, dbName=_name),
        ),
        "kind": _KIND,
        "write_ids": _write_ids,
    },
    constraints=_object,
    places=_list(_tuple(_partition_or_table, _location)),
)

_PARTITION = _fields(
    {
        "name": _partition_name,
        "partition": _fields({"values": _list(_text)}, sd=_STORAGE),
    }
)

_FILE_FIELDS = _fields(
    {
        "directory": _location,
        "partition": _partition_or_table,
        "path": _path,
        "target_path": _path,
        "size_bytes": _count,
        "modified_ns": _whole,
    },
    filtered=_flag,
    side_file=_path_or_none,
    kept=_location_or_none,
)
#: The fields of :class:`~.files.VisibleFile`.
FILE_FIELDS = frozenset(
    {"directory", "partition", "path", "target_path", "size_bytes", "modified_ns"}
    | {"filtered", "side_file", "kept"}
)


def _file(value: Any) -> None:
    _FILE_FIELDS(value)
    if unknown := value.keys() - FILE_FIELDS:
        raise ValueError(f"it has unknown fields {sorted(unknown)}")
    path, target = value["path"], value["target_path"]
    if path != target and target_file_path(path) != target:
        raise ValueError(f"the file {path!r} does not belong at {target!r} of the target")


def _table_document(name: str) -> Check:
    def check(value: Any) -> None:
        _TABLE(value)
        if value["table"]["tableName"] != name:
            raise ValueError(f"it describes table {value['table']['tableName']!r}")

    return check


check_external_entry = _fields(
    {"table": _table_name, "location": _location, "partition": _partition_or_table}
)

check_finished_load = _fields({"database": _name})

_BY_NAME: Mapping[str, Check] = {
    "database.json": _all(_struct(types.Database), _fields({}, name=_name)),
    "functions.jsonl": _all(
        _struct(types.Function),
        _fields({"functionName": _name}, resourceUris=_list(_fields({"uri": _resource})), dbName=_name),
    ),
    "ends.jsonl": _tuple(_whole, _flag, _whole),
}
_BY_FOLDER: Mapping[str, Check] = {
    "partitions": _PARTITION,
    "files": _file,
    "writes": _tuple(_whole, _whole),
    "load/digests": _fields({"uri": _location, "digest": _digest}),
    "load/placed": _fields({"uri": _location, "modified_ns": _whole}),
}

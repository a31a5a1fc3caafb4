"""Reads values of JSON documents as typed values, and refuses all others. Pure.

Digests prove that a document is unchanged. They do not prove its author, for a writer of a dump's directory
may write the manifest, too. So all names and paths are checked, whoever wrote them: none may lead out of the
directories of a table, a function or the dump itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import TypeVar

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.metastore.struct import Struct
from airflow_hive_federation.metastore.wire import from_json
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.storage.filesystem import parse_location

T = TypeVar("T")
D = TypeVar("D")
K = TypeVar("K")
E = TypeVar("E", bound=Enum)
S = TypeVar("S", bound=Struct)

#: A reader returns a value of JSON as a typed one, or raises a ``ValueError`` that describes the error in it.
Reader = Callable[[object], T]
JsonObject = Mapping[str, object]

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DOTS = {"", ".", ".."}
_LEAVES = re.compile(r"\x00|\A(?:/|\Z)|(?:\A|/)\.{1,2}(?:/|\Z)")
_DIGEST = re.compile(r"[0-9a-f]{64}")


# -- texts -----------------------------------------------------------------------------------------------


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} is no text")
    return value


def name(value: object) -> str:
    """Read the name of a database or function, which is at most one name of a directory."""
    read = text(value)
    if read in _DOTS or "/" in read or _CONTROL.search(read):
        raise ValueError(f"{read!r} is no name")
    return read


def table_name(value: object) -> str:
    """Read the name of a table.

    Hive allows ``/`` in such names (``MetaStoreUtils.specialCharactersInTableNames``).
    """
    read = text(value)
    if _CONTROL.search(read) or not _DOTS.isdisjoint(read.split("/")):
        raise ValueError(f"{read!r} is no name of a table")
    return read


def partition_name(value: object) -> str:
    read = text(value)
    if _CONTROL.search(read) or not all("=" in part for part in read.split("/")):
        raise ValueError(f"{read!r} is no name of a partition")
    return read


def partition_or_table(value: object) -> str:
    """Read the name of a partition; an empty text stands for the table itself."""
    return "" if value == "" else partition_name(value)


def path(value: object) -> str:
    """Read a path inside a directory."""
    read = text(value)
    if _LEAVES.search(read):
        raise ValueError(f"the path {read!r} does not lie inside its directory")
    return read


def path_or_none(value: object) -> str:
    """Read a path inside a directory; an empty text stands for none."""
    return "" if value == "" else path(value)


def location(value: object) -> str:
    """Read the URI of a directory or file."""
    read = text(value)
    if (problem := _location_problem(read)) is not None:
        raise ValueError(problem)
    return read


def location_or_none(value: object) -> str:
    """Read the URI of a directory or file; an empty text, or none, stands for none."""
    return "" if value is None or value == "" else location(value)


def resource(value: object) -> str:
    """Read the URI of a function's jar or file, whose last part becomes the name of the copy."""
    read = location(value)
    if read.rpartition("/")[2] in _DOTS:
        raise ValueError(f"{read!r} names no file")
    return read


def digest(value: object) -> str:
    read = text(value)
    if not _DIGEST.fullmatch(read):
        raise ValueError(f"{read!r} is no digest")
    return read


# -- other values ----------------------------------------------------------------------------------------


def whole(value: object) -> int:
    # ``bool`` is a subclass of ``int``.
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is no whole number")
    return value


def count(value: object) -> int:
    read = whole(value)
    if read < 0:
        raise ValueError(f"{read} is less than 0")
    return read


def number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is no number")
    return value


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is neither true nor false")
    return value


def json_object(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise ValueError(f"{_shown(value)} is no object")
    return value


def write_ids(value: object) -> ValidWriteIds | None:
    """Read the write ids of a table in Hive's text form; tables without write ids have none."""
    if value is None:
        return None
    try:
        return ValidWriteIds.parse(text(value))
    except HiveFederationError as error:
        raise ValueError(error.message) from error


def one_of(kind: type[E]) -> Reader[E]:
    """Make a reader of a member of an enumeration, by its value."""
    members = {str(member.value): member for member in kind}

    def read(value: object) -> E:
        member = members.get(value) if isinstance(value, str) else None
        if member is None:
            raise ValueError(f"{_shown(value)} is none of {', '.join(sorted(members))}")
        return member

    return read


def struct(kind: type[S]) -> Reader[S]:
    """Make a reader of a struct of the metastore, with all its fields."""

    def read(value: object) -> S:
        try:
            return from_json(kind, dict(json_object(value)))
        except HiveFederationError as error:
            raise ValueError(error.message) from error

    return read


# -- compound values -------------------------------------------------------------------------------------


class Fields:
    """Reads the fields of a JSON object, which may have other fields too.

    :param value: the object.
    :raises ValueError: it is no object.
    """

    __slots__ = ("_values",)

    def __init__(self, value: object) -> None:
        self._values = json_object(value)

    def __contains__(self, field: str) -> bool:
        return field in self._values

    def needed(self, field: str, read: Reader[T]) -> T:
        """Read a field that the object must have."""
        if field not in self._values:
            raise ValueError(f"it has no {field!r}")
        return self._read(field, read)

    def optional(self, field: str, read: Reader[T], *, default: D) -> T | D:
        """Read a field; if the object lacks it, return the default."""
        return self._read(field, read) if field in self._values else default

    def refuse_others(self, known: frozenset[str]) -> None:
        """Refuse an object that has a field with another name."""
        if unknown := self._values.keys() - known:
            raise ValueError(f"it has unknown fields {sorted(unknown)}")

    def _read(self, field: str, read: Reader[T]) -> T:
        try:
            return read(self._values[field])
        except ValueError as error:
            raise ValueError(f"{field}: {error}") from error


def list_of(read: Reader[T]) -> Reader[tuple[T, ...]]:
    def read_list(value: object) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise ValueError(f"{_shown(value)} is no list")
        return tuple(map(read, value))

    return read_list


def pair_of(first: Reader[K], second: Reader[T]) -> Reader[tuple[K, T]]:
    def read_pair(value: object) -> tuple[K, T]:
        left, right = items(value, 2)
        return first(left), second(right)

    return read_pair


def map_of(key: Reader[K], read: Reader[T]) -> Reader[Mapping[K, T]]:
    def read_map(value: object) -> Mapping[K, T]:
        return {key(field): read(item) for field, item in json_object(value).items()}

    return read_map


def or_none(read: Reader[T]) -> Reader[T | None]:
    def read_it(value: object) -> T | None:
        return None if value is None else read(value)

    return read_it


def items(value: object, size: int) -> list[object]:
    """Read a list of so many values."""
    if not isinstance(value, list) or len(value) != size:
        raise ValueError(f"{_shown(value)} is no list of {size} values")
    return value


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}…"


@lru_cache(maxsize=4096)
def _location_problem(uri: str) -> str | None:
    try:
        parse_location(uri)
    except HiveFederationError as error:
        return error.message
    # A relative path would be resolved against the working directory of the process.
    return None if ":" in uri or uri.startswith("/") else f"{uri!r} is no URI"

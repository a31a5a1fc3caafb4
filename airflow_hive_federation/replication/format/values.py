"""Reads names, paths and structs in a dump's documents, and refuses all others. Pure.

Digests prove that a document is unchanged. They do not prove its author, for a writer of a dump's directory
may write the manifest, too. So all names and paths are checked, whoever wrote them: none may lead out of the
directories of a table, a function or the dump itself.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TypeVar

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.metastore.struct import Struct
from airflow_hive_federation.metastore.wire import from_json
from airflow_hive_federation.model.json_values import Reader, json_object, text
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.storage.filesystem import parse_location

S = TypeVar("S", bound=Struct)

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DOTS = {"", ".", ".."}
_LEAVES = re.compile(r"\x00|\A(?:/|\Z)|(?:\A|/)\.{1,2}(?:/|\Z)")
_DIGEST = re.compile(r"[0-9a-f]{64}")


# -- texts -----------------------------------------------------------------------------------------------


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


def write_ids(value: object) -> ValidWriteIds | None:
    """Read the write ids of a table in Hive's text form; tables without write ids have none."""
    if value is None:
        return None
    try:
        return ValidWriteIds.parse(text(value))
    except HiveFederationError as error:
        raise ValueError(error.message) from error


def struct(kind: type[S]) -> Reader[S]:
    """Make a reader of a struct of the metastore, with all its fields."""

    def read(value: object) -> S:
        try:
            return from_json(kind, dict(json_object(value)))
        except HiveFederationError as error:
            raise ValueError(error.message) from error

    return read


@lru_cache(maxsize=4096)
def _location_problem(uri: str) -> str | None:
    try:
        parse_location(uri)
    except HiveFederationError as error:
        return error.message
    # A relative path would be resolved against the working directory of the process.
    return None if ":" in uri or uri.startswith("/") else f"{uri!r} is no URI"

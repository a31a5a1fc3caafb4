"""How a struct of the interface definition is laid out as a message of Protocol Buffers. Pure.

The generator of the descriptor set and the codec share these rules:

- A field keeps its number. A result's ``success`` is number 1, for its id is 0; a negative id takes one below
  18,000.
- Scalars are ``optional``, so that an unset field, an empty text and a zero stay three things. Numbers of
  containers that are set and empty are listed in ``empty_``.
- A container in a container is a message with the field ``values``. A map whose key is a container is a list
  of entries.
- ``raw_`` holds, by field number, what no message can: text that is no UTF-8. Its value is a struct with that
  one field, in Thrift's binary protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from airflow_hive_federation.metastore.struct import Spec, Struct

PACKAGE = "hive_federation.metastore.v1"
SERVICE = f"{PACKAGE}.HiveMetastore"
STREAMS = f"{PACKAGE}.HiveMetastoreStreams"
FILE_NAME = "hive_federation/metastore/v1/hive_metastore.proto"

EMPTY, EMPTY_NUMBER = "empty_", 18999
RAW, RAW_NUMBER = "raw_", 18998
_NEGATIVE_FROM = 17999

BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, STRUCT, MAP, SET, LIST, BINARY = (
    2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15, 18,
)  # fmt: skip
#: The one field of a message that stands for a container within a container.
VALUES = "values"
CONTAINERS = frozenset({MAP, SET, LIST})
_NAMES = {
    BOOL: "Bool",
    BYTE: "Byte",
    DOUBLE: "Double",
    I16: "Short",
    I32: "Int",
    I64: "Long",
    STRING: "String",
    BINARY: "Binary",
}


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of a struct as one of a message.

    :param number: its number in the message.
    :param ttype: Thrift's type.
    :param inner: struct, enum or types of values, as in a ``thrift_spec``.
    """

    number: int
    name: str
    ttype: int
    inner: Any

    @property
    def holds_text(self) -> bool:
        """Whether text stands in the field itself, not in a struct below it."""
        return any(ttype == STRING for ttype, _ in _flat(self.ttype, self.inner))


def fields(spec: Spec) -> list[Field]:
    """Return a struct's fields, by number."""
    found = [
        Field(
            number=_number(field_id, is_result=0 in spec),
            name=field[1],
            ttype=field[0],
            inner=field[2] if len(field) == 4 else None,
        )
        for field_id, field in spec.items()
    ]
    return sorted(found, key=lambda one: one.number)


def answer_spec(result: Spec) -> Spec:
    """Return a method's result without its exceptions: those are the status of a call."""
    return {field_id: field for field_id, field in result.items() if field_id == 0}


def pair(part: Any) -> tuple[int, Any]:
    """Return type and inner of a container's values."""
    return part if isinstance(part, tuple) else (part, None)


def type_name(ttype: int, inner: Any) -> str:
    """Return the name of a type within the names of messages made of it."""
    if ttype in {LIST, SET}:
        return f"{type_name(*pair(inner))}{'List' if ttype == LIST else 'Set'}"
    if ttype == MAP:
        key, value = inner
        return f"{type_name(*pair(key))}To{type_name(*pair(value))}Map"
    return str(inner.__name__) if inner is not None else _NAMES[ttype]


def is_entry_list(inner: Any) -> bool:
    """Whether a map is a list of entries, because no map of Protocol Buffers has such keys."""
    return pair(inner[0])[0] not in {STRING, I64, I32, I16, BYTE, BOOL}


def entry_name(field_name: str) -> str:
    """Return the name that protoc gives a map's entries."""
    return "".join(part[:1].upper() + part[1:] for part in field_name.split("_")) + "Entry"


def structs_below(spec: Spec) -> Iterator[type[Struct]]:
    """Yield the structs that a struct's fields mention."""
    for field in fields(spec):
        for ttype, inner in _flat(field.ttype, field.inner):
            if ttype == STRUCT:
                yield inner


def _number(field_id: int, *, is_result: bool) -> int:
    if field_id < 0:
        return _NEGATIVE_FROM + field_id + 1
    return field_id + is_result


def _flat(ttype: int, inner: Any) -> Iterator[tuple[int, Any]]:
    if ttype in {LIST, SET}:
        yield from _flat(*pair(inner))
    elif ttype == MAP:
        for part in inner:
            yield from _flat(*pair(part))
    else:
        yield ttype, inner

"""Defines the layout of a Thrift struct as a message of Protocol Buffers.

The generator of the descriptor set and the codec share these rules:

- A field keeps its number. The field ``success`` of a result has the number 1, since its id is 0; a negative
  id becomes a number below 18,000.
- Scalars are ``optional``, so that an unset field, an empty string and a zero stay distinct. The field
  ``empty_`` lists the numbers of containers that are set and empty.
- A container in a container is a message with the field ``values``. A map whose key is a container is a list
  of entries.
- The field ``raw_`` holds, by field number, strings that are no UTF-8, which no message can hold. Each value
  is a struct with that one field, in Thrift's binary protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from airflow_hive_federation.metastore.struct import Spec

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
#: Name of the only field of a message that stands for a container within a container.
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
    """A field of a struct, as a field of a message.

    :param number: number of the field in the message.
    :param name: name of the field.
    :param ttype: Thrift's type of the field.
    :param inner: struct, enum or types of values, as in a ``thrift_spec``.
    """

    number: int
    name: str
    ttype: int
    inner: Any

    @property
    def holds_text(self) -> bool:
        """True if the field itself holds strings, not only a struct below it."""
        return any(ttype == STRING for ttype, _ in _flat(self.ttype, self.inner))


def fields(spec: Spec) -> list[Field]:
    """Return a struct's fields, by number."""
    message_fields = [
        Field(
            number=_number(field_id, is_result=0 in spec),
            name=field[1],
            ttype=field[0],
            inner=field[2] if len(field) == 4 else None,
        )
        for field_id, field in spec.items()
    ]
    return sorted(message_fields, key=lambda message_field: message_field.number)


def answer_spec(result: Spec) -> Spec:
    """Return a method's result without its exceptions, which become the status of the call."""
    return {field_id: field for field_id, field in result.items() if field_id == 0}


def pair(part: object) -> tuple[int, Any]:
    """Return the type, and the inner type, of a container's values."""
    return part if isinstance(part, tuple) else (part, None)


def type_name(ttype: int, inner: Any) -> str:
    """Return a type's part in the names of messages that stand for containers of it."""
    if ttype in {LIST, SET}:
        return f"{type_name(*pair(inner))}{'List' if ttype == LIST else 'Set'}"
    if ttype == MAP:
        key, value = inner
        return f"{type_name(*pair(key))}To{type_name(*pair(value))}Map"
    return str(inner.__name__) if inner is not None else _NAMES[ttype]


def is_entry_list(inner: Any) -> bool:
    """Return whether a map becomes a list of entries, because Protocol Buffers allow no such map keys."""
    return pair(inner[0])[0] not in {STRING, I64, I32, I16, BYTE, BOOL}


def entry_name(field_name: str) -> str:
    """Return the name that protoc gives a map's entries."""
    return "".join(part[:1].upper() + part[1:] for part in field_name.split("_")) + "Entry"


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

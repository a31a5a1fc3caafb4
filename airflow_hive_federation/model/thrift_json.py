"""Reads Thrift's JSON (``TJSONProtocol``), in which Hive writes tables and partitions into its events.

It differs from JSON in one point: the keys of a map may be any values, so a ``map<list<string>, string>``
has lists for keys. ``SkewedInfo.skewedColValueLocationMaps``, the directories of a table that is
``STORED AS DIRECTORIES``, is such a map: ``{["str",2,"484","x"]:"file:/w/t/k=484/v=x"}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.json_values import Fields, Reader, list_of, map_of, text, whole

T = TypeVar("T")

#: Limits far above the needs of any table: a deeper or longer text holds no table.
_DEEPEST, _LONGEST = 100, 1 << 25
_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = json.JSONDecoder()


def loads(text: str) -> object:
    """Read a value; keys that are lists become tuples.

    :raises ValueError: if the text is not Thrift's JSON, is nested more than 100 levels deep, holds more
        than a million values, or has a map with such keys and more than 32 Mi characters.
    """
    bounded_json.check_values(text)
    try:
        return bounded_json.loads(text)
    except ValueError:
        # The fast parser rejects such keys; the slow one reads them, and reports the errors of other texts.
        if len(text) > _LONGEST:
            raise
    value, end = _value(text, _skipped(text, 0), 0)
    if end != len(text):
        raise ValueError(f"something follows the value at character {end}")
    return value


class ThriftStruct:
    """Reads the fields of a struct, which Thrift's JSON keys by number and type.

    :param value: the struct as a JSON object.
    """

    __slots__ = ("_fields",)

    def __init__(self, value: object) -> None:
        self._fields = Fields(value)

    @classmethod
    def parse(cls, value: object) -> ThriftStruct:
        """Read the text of a struct.

        :raises ValueError: if the value is no text, or has no struct.
        """
        return cls(loads(text(value)))

    def __contains__(self, number: int) -> bool:
        return str(number) in self._fields

    def text(self, number: int) -> str:
        """Return a field that is a string."""
        return self._field(number, "str", text)

    def whole(self, number: int, kind: str) -> int:
        """Return a field that is a number of a type, ``i32`` or ``i64``."""
        return self._field(number, kind, whole)

    def struct(self, number: int) -> ThriftStruct:
        """Return a field that is a struct."""
        return self._field(number, "rec", ThriftStruct)

    def texts(self, number: int) -> tuple[str, ...]:
        """Return a field that is a list of strings."""
        return self._items(number, text)

    def structs(self, number: int) -> tuple[ThriftStruct, ...]:
        """Return a field that is a list of structs."""
        return self._items(number, ThriftStruct)

    def text_map(self, number: int) -> Mapping[str, str]:
        """Return a field that is a map of strings to strings."""
        # The types of keys and values and the number of entries come before the map.
        return map_of(text, text)(self._field(number, "map", list_of(_as_it_is))[-1])

    def _items(self, number: int, read: Reader[T]) -> tuple[T, ...]:
        # The type and the number of items come before the items.
        return tuple(map(read, self._field(number, "lst", list_of(_as_it_is))[2:]))

    def _field(self, number: int, kind: str, read: Reader[T]) -> T:
        return self._fields.needed(str(number), Fields).needed(kind, read)


def _as_it_is(value: object) -> object:
    return value


def _value(text: str, at: int, depth: int) -> tuple[object, int]:
    """Read a value; return it, and the position after it and the following blanks."""
    if depth > _DEEPEST:
        raise ValueError(f"it is nested more than {_DEEPEST} levels deep")
    opening = text[at : at + 1]
    if opening == "[":
        return _items(text, at, "]", lambda start: _value(text, start, depth + 1))
    if opening == "{":
        pairs, end = _items(text, at, "}", lambda start: _pair(text, start, depth + 1))
        return dict(pairs), end
    value, end = _SCALAR.raw_decode(text, at)
    return value, _skipped(text, end)


def _items(text: str, at: int, closing: str, item: Callable[[int], tuple[T, int]]) -> tuple[list[T], int]:
    values: list[T] = []
    at = _skipped(text, at + 1)
    if text[at : at + 1] == closing:
        return values, _skipped(text, at + 1)
    while True:
        value, at = item(at)
        values.append(value)
        if text[at : at + 1] == closing:
            return values, _skipped(text, at + 1)
        at = _expected(text, at, ",")


def _pair(text: str, at: int, depth: int) -> tuple[tuple[object, object], int]:
    key, at = _value(text, at, depth)
    value, at = _value(text, _expected(text, at, ":"), depth)
    return (_hashable(key), value), at


def _hashable(key: object) -> object:
    if isinstance(key, dict):
        raise ValueError("a key of a map is a map itself")
    return tuple(map(_hashable, key)) if isinstance(key, list) else key


def _expected(text: str, at: int, mark: str) -> int:
    if text[at : at + 1] != mark:
        raise ValueError(f"{mark!r} expected at character {at}")
    return _skipped(text, at + 1)


def _skipped(text: str, at: int) -> int:
    blanks = _SPACE.match(text, at)
    return blanks.end() if blanks else at

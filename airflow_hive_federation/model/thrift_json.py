"""Reads Thrift's JSON (``TJSONProtocol``), in which Hive writes tables and partitions into its events.

It differs from JSON in one point: the keys of a map may be any values, so a ``map<list<string>, string>``
has lists for keys. ``SkewedInfo.skewedColValueLocationMaps``, the directories of a table that is
``STORED AS DIRECTORIES``, is such a map: ``{["str",2,"484","x"]:"file:/w/t/k=484/v=x"}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from airflow_hive_federation.model import bounded_json

#: Limits far above the needs of any table: a deeper or longer text holds no table.
_DEEPEST, _LONGEST = 100, 1 << 25
_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = json.JSONDecoder()


def loads(text: str) -> Any:
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


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
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


def _items(text: str, at: int, closing: str, item: Callable[[int], tuple[Any, int]]) -> tuple[list[Any], int]:
    values: list[Any] = []
    at = _skipped(text, at + 1)
    if text[at : at + 1] == closing:
        return values, _skipped(text, at + 1)
    while True:
        value, at = item(at)
        values.append(value)
        if text[at : at + 1] == closing:
            return values, _skipped(text, at + 1)
        at = _expected(text, at, ",")


def _pair(text: str, at: int, depth: int) -> tuple[tuple[Any, Any], int]:
    key, at = _value(text, at, depth)
    value, at = _value(text, _expected(text, at, ":"), depth)
    return (_hashable(key), value), at


def _hashable(key: object) -> Any:
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

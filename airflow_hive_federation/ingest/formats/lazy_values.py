"""Parses one text as one value by the rules of Hive's ``LazySimpleSerDe``, without any I/O.

Some rules of Hive's ``Lazy…`` classes may surprise: a whole number may have a fraction, which is cut off, but
no blanks around it, unlike other numbers; a decimal is rounded half up to its scale; ``true`` and ``false``
ignore case; a timestamp needs a time of day; a binary text is decoded if it is Base64, and kept as its bytes
otherwise. Hive makes null of an unreadable text; here such a text raises ``ValueError``, and the caller
decides. Years range from 1 to 9999.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow_hive_federation.model.types import HiveType

NULL_TEXT = r"\N"
INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_INTEGER = re.compile(r"([+-]?)(?:(\d+)(?:\.\d*)?|\.\d+)\Z", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?0*\d{1,2})?\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)\Z", re.ASCII)
_HEX = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?\Z", re.ASCII
)
_DATE = re.compile(r"(\d{1,4})-(\d{1,2})-(\d{1,2})(?:[ T].*)?\Z", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{1,4})-(\d{1,2})-(\d{1,2})[ T](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?\Z", re.ASCII
)
_ZONED_WALL = re.compile(
    r"(\d{1,4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?\Z", re.ASCII
)
_ZONED = re.compile(r"(.*?)\s*(Z|[+-]\d\d:?\d\d|[A-Za-z][A-Za-z_]+(?:/[A-Za-z_+\-0-9/]+)?)\Z", re.ASCII)
#: Limits a timestamp with its zone, whose name has at most 32 characters.
_ZONED_CHARS = 100
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?\Z", re.ASCII)


def value_of(
    text: str, hive_type: HiveType, separators: Sequence[str] = (), *, lenient: bool = False
) -> object:
    """Parse a text as a value of a Hive type.

    :param separators: separators of elements, of keys and values, and of the deeper levels.
    :param lenient: unreadable parts of a nested value become null, as in Hive.
    :raises ValueError: the text is not a value of the type; the message gives the reason.
    """
    if hive_type.name in _NESTED:
        return _NESTED[hive_type.name](text, hive_type, _Nesting(separators, lenient))
    if hive_type.name in INTEGER_BITS:
        return _integer(text, INTEGER_BITS[hive_type.name])
    if hive_type.name == "decimal":
        return decimal_of(text.strip(), hive_type)
    return _SCALARS[hive_type.name](text)


def is_null(text: str | None, hive_type: HiveType, null_text: str | None) -> bool:
    """Return true if a text stands for null: the null text, or empty text of a type without empty values."""
    return text is None or text == null_text or (not text and hive_type.name not in _EMPTY_IS_A_VALUE)


_EMPTY_IS_A_VALUE = {"string", "char", "varchar", "binary", "array", "map", "struct"}


def _integer(text: str, bits: int) -> int:
    match = _INTEGER.match(text)
    if match is None:
        raise ValueError(f"{_shown(text)} is not a whole number")
    value = int(match[1] + (match[2] or "0"))
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"{_shown(text)} does not fit into {bits} bits")
    return value


def _number(text: str) -> float:
    stripped = text.strip()
    if hexadecimal := _HEX.match(stripped):
        try:
            return float.fromhex(hexadecimal[1])
        except OverflowError:
            return float("-inf" if stripped.startswith("-") else "inf")
    if not _NUMBER.match(stripped):
        raise ValueError(f"{_shown(text)} is not a number")
    return float(stripped.rstrip("fFdD") if stripped[-1:] in "fFdD" else stripped)


def decimal_of(text: str, hive_type: HiveType) -> Decimal:
    """Parse a decimal and round it to the type's scale.

    :raises ValueError: the text is not a decimal, or has more digits before the point than the type.
    """
    precision, scale = hive_type.arguments
    if not _DECIMAL.match(text):
        raise ValueError(f"{_shown(text)} is not a decimal")
    try:
        with localcontext(prec=200):
            value = Decimal(text).quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP)
    except InvalidOperation as error:
        raise ValueError(f"{_shown(text)} is not a decimal") from error
    if not value.is_finite() or len(value.as_tuple().digits) > precision:
        raise ValueError(f"{_shown(text)} does not fit {hive_type}")
    return value


def _boolean(text: str) -> bool:
    value = {"true": True, "false": False}.get(text.lower())
    if value is None:
        raise ValueError(f"{_shown(text)} is neither true nor false")
    return value


def _date(text: str) -> date:
    match = _DATE.match(text.strip())
    if match is None:
        raise ValueError(f"{_shown(text)} is not a date like 2026-01-31")
    try:
        return date(*(int(part) for part in match.groups()[:3]))
    except ValueError as error:
        raise ValueError(f"{_shown(text)} is not a date: {error}") from error


def _timestamp(text: str) -> datetime:
    return _wall_clock(text, _TIMESTAMP)


def _wall_clock(text: str, pattern: re.Pattern[str]) -> datetime:
    match = pattern.match(text.strip())
    if match is None:
        raise ValueError(f"{_shown(text)} is not a timestamp like 2026-01-31 12:00:00.5")
    fraction = (match[7] or "").ljust(9, "0")
    if fraction[6:] != "000":
        raise ValueError(f"{_shown(text)} is finer than a microsecond, which is not stored")
    try:
        year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
        return datetime(year, month, day, hour, minute, second, int(fraction[:6]))  # noqa: DTZ001
    except ValueError as error:
        raise ValueError(f"{_shown(text)} is not a timestamp: {error}") from error


def _instant(text: str) -> datetime:
    stripped = text.strip()
    # The pattern tries each character as the beginning of the zone, so the length is limited.
    match = _ZONED.match(stripped) if len(stripped) <= _ZONED_CHARS else None
    if match is None:
        raise ValueError(f"{_shown(text)} is not a timestamp with a time zone")
    wall, zone = _wall_clock(match[1], _ZONED_WALL), match[2]
    try:
        if zone[0] in "+-":
            offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
            return (wall - (offset if zone[0] == "+" else -offset)).replace(tzinfo=UTC)
        return wall.replace(tzinfo=UTC if zone == "Z" else ZoneInfo(zone)).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{_shown(text)} is not a time of the years 1 to 9999") from error
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        # ZoneInfo opens the name as a file; the name of a directory raises OSError.
        raise ValueError(f"{_shown(text)} names an unknown time zone") from error


def _binary(text: str) -> bytes:
    """Decode as ``java.util.Base64`` does, which does not need the padding at the end."""
    if not _BASE64.match(text):
        return text.encode()
    return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))


_SCALARS: dict[str, Callable[[str], Any]] = {
    "boolean": _boolean,
    "float": _number,
    "double": _number,
    "string": str,
    "char": str,
    "varchar": str,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp with local time zone": _instant,
}


# Nested: levels of separators ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Nesting:
    separators: Sequence[str]
    lenient: bool

    def separator(self, level: int) -> str:
        if level >= len(self.separators):
            raise ValueError("it is nested in more levels than the table has separators")
        return self.separators[level]

    def element(self, text: str | None, hive_type: HiveType, levels: int) -> Any:
        """Parse an element that lies this many levels deeper."""
        if is_null(text, hive_type, NULL_TEXT):
            return None
        try:
            return value_of(text or "", hive_type, self.separators[levels:], lenient=self.lenient)
        except ValueError:
            if self.lenient:
                return None
            raise


def _array(text: str, hive_type: HiveType, nesting: _Nesting) -> list[object]:
    parts = text.split(nesting.separator(0)) if text else []
    return [nesting.element(part, hive_type.children[0], 1) for part in parts]


def _map(text: str, hive_type: HiveType, nesting: _Nesting) -> list[tuple[Any, Any]]:
    key_type, item_type = hive_type.children
    items: dict[object, object] = {}
    for part in text.split(nesting.separator(0)) if text else []:
        key, between, item = part.partition(nesting.separator(1))
        name = nesting.element(key, key_type, 2)
        if name is not None and name not in items:
            items[name] = nesting.element(item, item_type, 2) if between else None
    return list(items.items())


def _struct(text: str, hive_type: HiveType, nesting: _Nesting) -> dict[str, object]:
    parts: list[str | None] = [*text.split(nesting.separator(0))]
    wanted = len(hive_type.fields)
    if len(parts) > wanted and not nesting.lenient:
        raise ValueError(f"{_shown(text)} has more parts than {hive_type} has fields")
    parts = [*parts[:wanted], *[None] * (wanted - len(parts))]
    return {
        field.name: nesting.element(part, field.type, 1)
        for field, part in zip(hive_type.fields, parts, strict=True)
    }


_NESTED: dict[str, Callable[[str, HiveType, _Nesting], Any]] = {
    "array": _array,
    "map": _map,
    "struct": _struct,
}


def _shown(text: str) -> str:
    """Quote the beginning of a text that may be very long."""
    return repr(text) if len(text) <= 80 else f"{text[:80]!r}… ({len(text)} characters)"

"""Compares values of partition keys and constants where Hive and Spark agree. Pure.

Where the two engines differ, or a session's settings decide, the value or outcome is :data:`UNDECIDED`:

- a string that is compared with a number: Hive compares doubles, Spark casts to the number's type. They agree
  on canonical integers (``'7'``, not ``'07.0'``) below 2^53.
- a string that is compared with a date: they agree on ``yyyy-MM-dd``.
- floating-point and timestamp keys, and ``CHAR``, whose padding counts in one of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Final


class _Unknown(Enum):
    UNDECIDED = "undecided"


#: A value that routing cannot determine.
UNDECIDED: Final = _Unknown.UNDECIDED
Scalar = str | int | Decimal | date | bool | _Unknown | None

#: Begins a variable, whose value an engine puts in its place before it reads the statement.
VARIABLE = "${"
#: In Java's date formats, the year that a day's week belongs to; sqlglot takes it for the year (``yyyy``).
WEEK_YEAR = "YYYY"
#: The value of the partition for rows whose key is null (``hive.exec.default.partition.name``).
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_TRUE, _FALSE, _NULL = 1, 2, 4
_ANY = _TRUE | _FALSE | _NULL
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,14}")
_DIGITS = re.compile(r"-?[0-9]{1,18}")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INTEGERS = frozenset({"tinyint", "smallint", "int", "integer", "bigint"})


def typed(text: str, kind: str) -> Scalar:
    """Convert the metastore's text of a key into its value.

    :param kind: the key's Hive type, with or without its parameters.
    """
    if text == DEFAULT_PARTITION:
        return None
    name = kind.partition("(")[0].strip().lower()
    if name in _INTEGERS:
        return int(text) if _DIGITS.fullmatch(text) else UNDECIDED
    return _TYPES[name](text) if name in _TYPES else UNDECIDED


def day(text: str) -> date | None:
    """Return the date in a text of the form ``yyyy-MM-dd``; ``None`` for any other text."""
    if not _DAY.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def compared(operator: str, left: Scalar, right: Scalar) -> int:
    """Return the possible outcomes of a comparison, as bits."""
    if operator == "<=>":
        return _compared_with_nulls(left, right)
    if DEFAULT_PARTITION in {left, right}:
        # In old versions of Hive, a query may select the default partition by that name.
        return _ANY
    if left is None or right is None:
        return _NULL
    if type(left) is not type(right) or left is UNDECIDED:
        pair = _alike(left, right)
        if pair is None:
            return _ANY
        left, right = pair
    return _TRUE if _OPERATORS[operator](left, right) else _FALSE


def _compared_with_nulls(left: Scalar, right: Scalar) -> int:
    if left is None or right is None:
        other = right if left is None else left
        return _TRUE | _FALSE if other is UNDECIDED else _TRUE if other is None else _FALSE
    outcome = compared("=", left, right)
    return outcome if outcome != _ANY else _TRUE | _FALSE


def like(value: Scalar, pattern: str) -> int:
    """Return the possible outcomes of ``value LIKE 'pattern'``, as bits."""
    if "\\" in pattern:
        return _ANY
    parts = {"%": ".*", "_": "."}
    expression = "".join(parts.get(character) or re.escape(character) for character in pattern)
    if value is None:
        return _ANY if re.fullmatch(expression, DEFAULT_PARTITION) else _NULL
    text = _text(value)
    if text is None:
        return _ANY
    return _TRUE if re.fullmatch(expression, text, re.DOTALL) else _FALSE


def called(function: str, arguments: Sequence[Scalar]) -> Scalar:
    """Return the value of a function that Hive and Spark compute alike; null for a null argument."""
    if UNDECIDED in arguments:
        return UNDECIDED
    if None in arguments:
        return None
    return _FUNCTIONS[function](*arguments)


def _alike(left: Scalar, right: Scalar) -> tuple[Scalar, Scalar] | None:
    """Return both values in one type; ``None`` if engines may choose different types."""
    if isinstance(left, bool) or isinstance(right, bool):
        return None
    if isinstance(left, int | Decimal) and isinstance(right, int | Decimal):
        return left, right
    for text, other, swap in ((left, right, False), (right, left, True)):
        if not isinstance(text, str):
            continue
        converted: Scalar = None
        if isinstance(other, int) and abs(other) < 2**53:
            converted = int(text) if _INTEGER.fullmatch(text) else None
        elif isinstance(other, date):
            converted = day(text)
        if converted is not None:
            return (other, converted) if swap else (converted, other)
    return None


_OPERATORS: dict[str, Callable[..., bool]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _decimal(text: str) -> Scalar:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return UNDECIDED
    return number if number.is_finite() else UNDECIDED


def _text(value: Scalar) -> str | None:
    """Return the value as a string, if all engines format it alike."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return str(value)
    return value.isoformat() if isinstance(value, date) else None


def _date(value: Scalar) -> date | None:
    if isinstance(value, date):
        return value
    return day(value) if isinstance(value, str) else None


def _date_add(value: Scalar, days: Scalar) -> Scalar:
    start = _date(value)
    if start is None or type(days) is not int:
        return UNDECIDED
    try:
        return start + timedelta(days=days)
    except OverflowError:
        return UNDECIDED


def _substring(value: Scalar, start: Scalar, length: Scalar = 2**31) -> Scalar:
    text = _text(value)
    if text is None or not text.isascii() or type(start) is not int or type(length) is not int:
        return UNDECIDED
    begin = start - 1 if start > 0 else 0 if start == 0 else len(text) + start
    # Hive and Spark differ if the start lies before the text.
    return UNDECIDED if begin < 0 else text[begin : begin + max(length, 0)]


def _concat(*values: Scalar) -> Scalar:
    texts = [_text(value) for value in values]
    return UNDECIDED if None in texts else "".join(text for text in texts if text is not None)


def _cased(change: Callable[[str], str]) -> Callable[[Scalar], Scalar]:
    def apply(value: Scalar) -> Scalar:
        text = _text(value)
        return change(text) if text is not None and text.isascii() else UNDECIDED

    return apply


def _part(name: str) -> Callable[[Scalar], Scalar]:
    def part(value: Scalar) -> Scalar:
        date_ = _date(value)
        return UNDECIDED if date_ is None else int(getattr(date_, name))

    return part


def _formatted(value: Scalar, pattern: Scalar) -> Scalar:
    date_ = _date(value)
    if date_ is None or not isinstance(pattern, str):
        return UNDECIDED
    year, month, of_month = f"{date_.year:04}", f"{date_.month:02}", f"{date_.day:02}"
    return pattern.replace("yyyy", year).replace("MM", month).replace("dd", of_month)


def _integer(bits: int) -> Callable[[Scalar], Scalar]:
    def cast(value: Scalar) -> Scalar:
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            value = int(value)
        # Beyond the type's range, an engine wraps around, returns null, or fails.
        fits = type(value) is int and -(1 << bits - 1) <= value < 1 << bits - 1
        return value if fits else UNDECIDED

    return cast


def _sum(sign: int) -> Callable[[Scalar, Scalar], Scalar]:
    def add(left: Scalar, right: Scalar) -> Scalar:
        if type(left) is int and type(right) is int and max(abs(left), abs(right)) < 2**30:
            return left + sign * right
        return UNDECIDED

    return add


def _or_undecided(value: Scalar) -> Scalar:
    return UNDECIDED if value is None else value


_TYPES: dict[str, Callable[[str], Scalar]] = {
    "string": str,
    "varchar": str,
    "date": lambda text: _or_undecided(day(text)),
    "boolean": lambda text: {"true": True, "false": False}.get(text, UNDECIDED),
    "decimal": _decimal,
}
_FUNCTIONS: dict[str, Callable[..., Scalar]] = {
    "add": _sum(1),
    "subtract": _sum(-1),
    "date_add": _date_add,
    "to_date": lambda value: _or_undecided(_date(value)),
    "date_format": _formatted,
    "year": _part("year"),
    "month": _part("month"),
    "day": _part("day"),
    "substring": _substring,
    "concat": _concat,
    "upper": _cased(str.upper),
    "lower": _cased(str.lower),
    "to_string": lambda value: _or_undecided(_text(value)),
    "to_int": _integer(32),
    "to_bigint": _integer(64),
}

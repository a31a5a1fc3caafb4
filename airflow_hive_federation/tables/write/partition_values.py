"""Writes values of partition keys as the texts in Hive's partition names, without any input or output.

Equal values must have equal texts; otherwise a table gets two partitions, of which a statement sees one. A
caller's value is therefore parsed as the key's type, as Hive parses the constants of ``PARTITION (…)``, and
written anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np

from airflow_hive_federation.model.partitions import DEFAULT_PARTITION
from airflow_hive_federation.model.types import HiveType

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_TRUTH = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), "true"),
    **dict.fromkeys(("false", "f", "no", "n", "0"), "false"),
}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,4})?", re.ASCII | re.IGNORECASE)
_SPECIAL = {"nan", "infinity", "+infinity", "-infinity", "inf", "+inf", "-inf"}
_MOMENT = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6})0*)?)?)?", re.ASCII
)
_ROUNDING = Context(prec=80, rounding=ROUND_HALF_UP)
"""A context with more digits than any Hive decimal has."""


def value_text(value: object, hive_type: HiveType) -> str:
    """Return the text of a partition value; null and an empty text mean the default partition.

    :raises ValueError: if the value does not fit the key's type.
    """
    if value is None or (isinstance(value, str) and value in {"", DEFAULT_PARTITION}):
        return DEFAULT_PARTITION
    convert = _CONVERSIONS.get(hive_type.name)
    text = convert(value, hive_type) if convert is not None else _as_given(value)
    return text or DEFAULT_PARTITION


def decimal_text(value: Decimal) -> str:
    """Return the text of a decimal without trailing zeros in its fraction, as ``HiveDecimal`` does."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def double_text(value: float) -> str:
    """Return the text of a number in a partition name, as ``Double.toString`` of Java does."""
    if value != value or value in {float("inf"), float("-inf")}:  # noqa: PLR0124 - NaN
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return f"{Decimal(repr(value)):f}" + ("" if "." in f"{Decimal(repr(value)):f}" else ".0")
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{digits[0]}.{fraction}E{int(exponent) + len(digits) - 1}"


def float_text(value: float) -> str:
    """Return the text of a number of Hive's ``float``, as ``Float.toString`` of Java does.

    It is the shortest text of this number among floats, not that of the nearest double.
    """
    with np.errstate(over="ignore"):
        return double_text(float(str(np.float32(value))))


def timestamp_text(value: datetime) -> str:
    """Return the text of a wall clock without trailing zeros in its fraction."""
    text = str(value.strftime("%Y-%m-%d %H:%M:%S")).rjust(19, "0")
    return text + (f".{value.microsecond:06d}".rstrip("0") if value.microsecond else "")


def _as_given(value: object) -> str:
    """Return the text of a value by its Python type; a text stays unchanged."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return double_text(float(value))
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime) and value == value and value.tzinfo is None:  # noqa: PLR0124 - NaT
        return timestamp_text(value)
    return value.decode() if isinstance(value, bytes) else str(value)


def _number(value: object) -> Decimal:
    text = str(value).strip()
    if isinstance(value, bool) or not _NUMBER.fullmatch(text):
        raise ValueError("it is not a number")
    return Decimal(text)


def _integer(value: object, hive_type: HiveType) -> str:
    number, most = _number(value), 2 ** (_BITS[hive_type.name] - 1)
    if not -most <= number < most or number != number.to_integral_value():
        raise ValueError(f"it is not a whole number from {-most} to {most - 1}")
    return str(int(number))


def _decimal(value: object, hive_type: HiveType) -> str:
    precision, scale = hive_type.arguments
    number = _number(value)
    if number.adjusted() <= precision - scale:
        # Excess digits of the fraction are rounded, as in Spark and Hive; zero has no sign.
        number = _ROUNDING.plus(_ROUNDING.quantize(number, Decimal(1).scaleb(-scale)))
    if number.adjusted() >= precision - scale and number:
        raise ValueError("it has too many digits")
    return decimal_text(number)


def _floating(value: object, hive_type: HiveType) -> str:
    text = str(value).strip()
    if isinstance(value, bool) or not (_NUMBER.fullmatch(text) or text.lower() in _SPECIAL):
        raise ValueError("it is not a number")
    return (float_text if hive_type.name == "float" else double_text)(float(text))


def _boolean(value: object, _: HiveType) -> str:
    text = str(value).strip().lower()
    if text not in _TRUTH:
        raise ValueError("it is neither true nor false")
    return _TRUTH[text]


def _moment(value: object) -> datetime:
    match = _MOMENT.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(
            "it is not year-month-day, with or without hours:minutes:seconds, and without a zone"
        )
    *clock, fraction = match.groups(default="0")
    year, month, day, hour, minute, second = map(int, clock)
    return datetime(year, month, day, hour, minute, second, int(fraction.ljust(6, "0")))  # noqa: DTZ001


def _date(value: object, _: HiveType) -> str:
    return date.isoformat(_moment(value).date())


def _timestamp(value: object, _: HiveType) -> str:
    return timestamp_text(_moment(value))


def _char(value: object, hive_type: HiveType) -> str:
    return _varchar(value, hive_type).rstrip(" ")


def _varchar(value: object, hive_type: HiveType) -> str:
    return _as_given(value)[: hive_type.arguments[0]]


_CONVERSIONS: dict[str, Callable[[Any, HiveType], str]] = {
    **dict.fromkeys(_BITS, _integer),
    "decimal": _decimal,
    "float": _floating,
    "double": _floating,
    "boolean": _boolean,
    "date": _date,
    "timestamp": _timestamp,
    "char": _char,
    "varchar": _varchar,
}

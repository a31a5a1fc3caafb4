"""Converts texts to Arrow columns: regular columns as a whole, other columns value by value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.ingest.formats.lazy_values import INTEGER_BITS, is_null
from airflow_hive_federation.model.types import Column, HiveType
from airflow_hive_federation.orc.arrow_columns import arrow_type

_TEXTS = {"string", "char", "varchar"}
# Numbers of at most this many digits fit the type.
_SAFE_DIGITS = {"tinyint": 2, "smallint": 4, "int": 9, "bigint": 18}
_NUMBER = r"^-?[0-9]{1,15}(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?$"
_PATTERNS = {
    "float": _NUMBER,
    "double": _NUMBER,
    "date": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "timestamp": r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class BadRecord:
    """A record that could not be parsed.

    :param index: position of the record among the records parsed together, from 0.
    :param column: the column that could not be parsed; empty if the record as a whole is bad.
    :param reason: the reason why the record is bad.
    """

    index: int
    column: str
    reason: str


def column_of(
    texts: pa.Array, column: Column, read: Callable[[str, HiveType], object], null_text: str | None = None
) -> tuple[pa.Array, list[BadRecord]]:
    """Convert texts to a column of a Hive type.

    :param texts: strings; null becomes null.
    :param read: parses one irregular text; raises ``ValueError`` for a text that is not a value of the type.
    :param null_text: the text that stands for null.
    :return: the column, with nulls for the unreadable texts, and the bad records with their reasons.
    """
    hive_type = column.type
    if hive_type.name in _TEXTS:
        return texts, []
    if hive_type.name == "boolean":
        texts = pc.utf8_lower(texts)
    regular = _regular(_without_empty(texts, hive_type), hive_type)
    if regular is not None:
        return regular, []
    listed = [None if is_null(text, hive_type, null_text) else text for text in texts.to_pylist()]
    return values_column(listed, column, lambda text: read(text, hive_type))


def values_column(
    values: Sequence[object], column: Column, convert: Callable[[Any], Any]
) -> tuple[pa.Array, list[BadRecord]]:
    """Convert Python values to a column of a Hive type; ``None`` becomes null.

    :param convert: converts one value; raises ``ValueError`` for a value that is not of the type.
    """
    converted, bad = [], []
    for index, value in enumerate(values):
        try:
            converted.append(None if value is None else convert(value))
        except ValueError as error:
            converted.append(None)
            bad.append(BadRecord(index=index, column=column.name, reason=str(error)))
    return _array(converted, column, bad), bad


def _array(made: list[Any], column: Column, bad: list[BadRecord]) -> pa.Array:
    wanted = arrow_type(column.type)
    try:
        return pa.array(made, wanted)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        pass
    # Arrow does not name the bad value: a decimal with too many digits, a date out of range, a text for a
    # struct. So each value is tried alone.
    for index, value in enumerate(made):
        try:
            pa.array([value], wanted)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            made[index] = None
            bad.append(BadRecord(index=index, column=column.name, reason=f"not {column.type}: {error}"))
    return pa.array(made, wanted)


def _without_empty(texts: pa.Array, hive_type: HiveType) -> pa.Array:
    if is_null("", hive_type, None) and pc.any(pc.equal(texts, "")).as_py():
        return pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)
    return texts


def _regular(texts: pa.Array, hive_type: HiveType) -> pa.Array | None:
    """Cast all texts at once if Arrow parses each as Hive does; else return ``None``."""
    if hive_type.name == "boolean":
        pattern = "^(true|false)$"
    elif hive_type.name in INTEGER_BITS:
        pattern = f"^-?[0-9]{{1,{_SAFE_DIGITS[hive_type.name]}}}$"
    elif hive_type.name == "decimal":
        precision, scale = hive_type.arguments
        if precision == scale:
            return None
        pattern = rf"^-?[0-9]{{1,{precision - scale}}}" + (rf"(\.[0-9]{{1,{scale}}})?$" if scale else "$")
    elif hive_type.name in _PATTERNS:
        pattern = _PATTERNS[hive_type.name]
    else:
        return None
    if pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py() is False:
        return None
    try:
        return pc.cast(texts, arrow_type(hive_type))
    except pa.ArrowInvalid:
        return None

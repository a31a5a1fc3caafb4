"""Converts rows of a database to Arrow batches of a Hive table's columns, without any I/O."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from airflow_hive_federation.ingest.formats.columns import BadRecord, values_column
from airflow_hive_federation.ingest.formats.lazy_values import INTEGER_BITS, value_of
from airflow_hive_federation.ingest.formats.writers import Parsed, unstorable
from airflow_hive_federation.model.types import Column, HiveType
from airflow_hive_federation.orc.arrow_columns import arrow_type

Row = Sequence[Any]


def rows_parsed(rows: Sequence[Row], places: Sequence[int], columns: Sequence[Column]) -> Parsed:
    """Convert rows to one Arrow batch.

    Values are converted where the column's type requires it: numbers and UUIDs to texts, texts to other types
    (by the rules of Hive's ``LazySimpleSerDe``), whole decimals and floats to integers, 0 and 1 to booleans,
    times with a zone to UTC. Only numbers with a fraction are rounded, to the nearest float or double; no
    other value changes.

    :param places: index of each column in a row.
    :return: the rows, and the bad rows that do not fit the columns, with the reason.
    """
    arrays, bad = [], []
    for place, column in zip(places, columns, strict=True):
        array, wrong = _column([row[place] for row in rows], column)
        arrays.append(array)
        bad += [*wrong, *unstorable(array, column)]
    batch = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
    if not bad:
        return Parsed(rows=batch)
    first: dict[int, BadRecord] = {}
    for bad_record in bad:
        first.setdefault(bad_record.index, bad_record)
    keep = pa.array([index not in first for index in range(len(rows))])
    return Parsed(rows=batch.filter(keep), bad=[first[index] for index in sorted(first)])


def row_text(names: Sequence[str], row: Row) -> bytes:
    """Write a row as a JSON object for dead letters, which people read."""
    return json.dumps(dict(zip(names, row, strict=True)), default=str, ensure_ascii=False).encode()


def _column(values: list[Any], column: Column) -> tuple[pa.Array, list[BadRecord]]:
    kind = column.type.name
    if set(map(type, values)) <= _AS_THEY_ARE.get(kind, set()) | {type(None)}:
        try:
            return pa.array(values, arrow_type(column.type)), []
        except (pa.ArrowException, OverflowError):
            # Some value does not fit; converting each value alone finds it.
            pass
    return values_column(values, column, lambda value: _converted(value, column.type))


def _converted(value: object, hive_type: HiveType) -> object:
    kind = hive_type.name
    if isinstance(value, memoryview | bytearray):
        value = bytes(value)
    if isinstance(value, str) and kind not in {*_TEXTS, "binary"}:
        return value_of(value, hive_type)
    if kind in INTEGER_BITS:
        return _integer(value)
    convert = _CONVERTERS.get(kind)
    converted = value if convert is None else convert(value)
    if converted is None:
        raise ValueError(f"{_described(value)} is no {hive_type}")
    return converted


def _integer(value: object) -> int:
    if isinstance(value, bool | int | float | Decimal) and math.isfinite(value) and value == int(value):
        return int(value)
    raise ValueError(f"{_described(value)} is not a whole number")


def _boolean(value: object) -> bool | None:
    return bool(value) if isinstance(value, bool | int | Decimal) and value in {0, 1} else None


def _double(value: object) -> float | None:
    return _floating(value, float)


def _float(value: object) -> float | None:
    return _floating(value, _nearest_float)


def _floating(value: object, nearest: Callable[[float], float]) -> float | None:
    """Return the nearest number of a type; only numbers with a fraction are rounded."""
    if not isinstance(value, int | float | Decimal):
        return None
    try:
        number = nearest(float(value))
    except OverflowError:
        number = math.inf
    is_whole = isinstance(value, int) or (
        isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value()
    )
    if (math.isinf(number) and abs(value) != math.inf) or (is_whole and number != value):
        raise ValueError(f"{_described(value)} would change as a floating-point number")
    return number


def _nearest_float(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, float):
        return Decimal(repr(value)) if math.isfinite(value) else None
    return Decimal(value) if isinstance(value, int | Decimal) else None


def _text(value: object) -> str | None:
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value) if isinstance(value, str | int | UUID) and not isinstance(value, bool) else None


def _binary(value: object) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else None


def _date(value: object) -> date | None:
    if isinstance(value, datetime):
        # Oracle's DATE has a time of day.
        return value.date() if value.time() == time.min else None
    return value if isinstance(value, date) else None


def _timestamp(value: object) -> datetime | None:
    if isinstance(value, datetime):
        return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    return datetime.combine(value, time.min) if isinstance(value, date) else None


def _instant(value: object) -> datetime | None:
    wall_clock = _timestamp(value)
    return None if wall_clock is None else wall_clock.replace(tzinfo=UTC)


def _described(value: object) -> str:
    return f"{str(value)[:50]!r} ({type(value).__name__})"


_TEXTS = {"string", "char", "varchar"}
_AS_THEY_ARE: dict[str, set[type]] = {
    **{kind: {int} for kind in INTEGER_BITS},
    **{kind: {str} for kind in _TEXTS},
    "boolean": {bool},
    "double": {float},
    "decimal": {Decimal},
    "binary": {bytes},
    "date": {date},
}
_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_TEXTS, _text),
    "boolean": _boolean,
    "float": _float,
    "double": _double,
    "decimal": _decimal,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp with local time zone": _instant,
}

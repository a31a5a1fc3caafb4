"""JSON records, as Hive's ``StrictJsonWriter`` reads them by ``JsonSerDe``.

One object a record. Keys know no case; keys that are no columns are passed over; missing ones are null. A
text is read as a number where the column is one, and a number, or an object, as a text where it is a text.
Where Hive's reader makes 0 of what is no number, the record is bad here.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from typing import Any, Self

import pyarrow as pa
from pyarrow import json as arrow_json

from airflow_hive_federation.ingest.formats.columns import BadRecord, values_column
from airflow_hive_federation.ingest.formats.lazy_values import INTEGER_BITS, value_of
from airflow_hive_federation.ingest.formats.writers import (
    MAX_RECORD_VALUES,
    AbstractRecordWriter,
    Malformed,
    Parsed,
)
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.types import HiveType
from airflow_hive_federation.orc.arrow_columns import arrow_type

# Types of which Arrow's reader takes what we take, or fails.
_AT_ONCE = {"boolean", "tinyint", "smallint", "int", "bigint", "double", "string", "varchar", "char"}
#: Behind a brace: more than the rest of an object, so perhaps a second value in one record.
_MORE = re.compile(rb"\}[ \t\r\n]*[^ \t\r\n,}\]{]")
#: Numbers to Arrow's reader, and none in JSON.
_NO_NUMBER = re.compile(rb"NaN|Inf")
#: A whole number to Jackson, so that a double of it is 0; Arrow's reader makes it -0.
_MINUS_ZERO = re.compile(rb"-0[ \t\r\n,}]")
_EXPONENT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)[eE][+-]?\d{1,3}\Z", re.ASCII)
_TEXTS = {"string", "char", "varchar"}
_ESCAPES = {code: f"\\u{code:04X}" for code in range(32)} | {
    ord(one): f"\\{name}" for one, name in zip('\b\t\n\f\r"\\', 'btnfr"\\', strict=True)
}


class StrictJsonWriter(AbstractRecordWriter):
    """Records of one JSON object each; made by :meth:`new_builder`."""

    @staticmethod
    def new_builder() -> StrictJsonWriterBuilder:
        """Begin to describe one."""
        return StrictJsonWriterBuilder()

    def encode(self, record: bytes) -> Sequence[Any]:
        """Return the values of one object as JSON has them."""
        try:
            found = bounded_json.loads(
                record, max_values=MAX_RECORD_VALUES, parse_float=Decimal, parse_constant=_no_constant
            )
        except UnicodeDecodeError as error:
            raise ValueError(f"byte {error.start} is not UTF-8 ({error.reason})") from error
        except ArithmeticError as error:
            raise ValueError("it holds a number with an exponent that is too large") from error
        if not isinstance(found, dict):
            raise ValueError("it is no JSON object")
        by_name = {key.lower(): value for key, value in found.items()}
        return [by_name.get(column.name) for column in self.columns]

    def parse(self, records: Sequence[bytes]) -> Parsed:
        """Make rows of records."""
        rows = self._at_once(records)
        return Parsed(rows=rows) if rows is not None else self._each(records)

    def _at_once(self, records: Sequence[bytes]) -> pa.RecordBatch | None:
        if any(column.type.name not in _AT_ONCE for column in self.columns):
            return None
        blob = b"\n".join(records)
        if _MINUS_ZERO.search(blob) or not _is_an_object_each(records, blob):
            return None
        schema = pa.schema([(column.name, arrow_type(column.type)) for column in self.columns])
        try:
            table = arrow_json.read_json(
                pa.BufferReader(blob),
                read_options=arrow_json.ReadOptions(block_size=len(blob) + 1, use_threads=False),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="error"
                ),
            )
            # Arrow's reader lets pass what is no UTF-8.
            table.validate(full=True)
        except pa.ArrowInvalid:
            # Other keys or other types than the columns', or no JSON: looked at one by one.
            return None
        if table.num_rows != len(records) or not table.schema.equals(schema):
            return None
        return table.combine_chunks().to_batches()[0] if table.num_rows else None

    def _each(self, records: Sequence[bytes]) -> Parsed:
        rows: list[Sequence[Any]] = []
        bad: list[BadRecord] = []
        nothing = [None] * len(self.columns)
        for index, record in enumerate(records):
            try:
                rows.append(self.encode(record))
            except ValueError as error:
                rows.append(nothing)
                bad.append(BadRecord(index=index, column="", reason=str(error)))
        arrays = []
        for place, column in enumerate(self.columns):
            array, wrong = values_column([row[place] for row in rows], column, _converter(column.type))
            arrays.append(array)
            if self.malformed == "raise":
                bad += wrong
        return self.without_bad(arrays, bad)


class StrictJsonWriterBuilder:
    """Describes a :class:`StrictJsonWriter`; the names are those of Hive's builder."""

    def __init__(self) -> None:
        self._line: str | bytes | None = None
        self._malformed: Malformed = "raise"

    def with_line_delimiter(self, delimiter: str | bytes) -> Self:
        """Set what ends a record of a stream (a line feed). It is taken literally, not as a pattern."""
        self._line = delimiter
        return self

    def with_malformed(self, malformed: Malformed) -> Self:
        """``raise`` for values that cannot be read, or ``null``."""
        self._malformed = malformed
        return self

    def build(self) -> StrictJsonWriter:
        """Make the writer."""
        return StrictJsonWriter(line_delimiter=self._line, malformed=self._malformed)


def _is_an_object_each(records: Sequence[bytes], blob: bytes) -> bool:
    """Whether each record is sure to be one object, if all of them together are as many values.

    Arrow's reader sees them one after the other. An object that one record begins and the next one ends would
    be a row; a value that is no object makes a row of nulls, or ends the process. No object goes on between
    a record that ends with a brace and one that begins with a brace.

    :param blob: the records, lines of it.
    """
    doubtful = [one for one in records if not (one.startswith(b"{") and one.endswith(b"}"))]
    if _MORE.search(blob) or _NO_NUMBER.search(blob):
        doubtful += [one for one in records if _MORE.search(one) or _NO_NUMBER.search(one)]
    return all(map(_is_an_object, doubtful)) and not any(b"\n" in one for one in doubtful)


def _is_an_object(record: bytes) -> bool:
    try:
        return isinstance(bounded_json.loads(record.decode(), parse_constant=_no_constant), dict)
    except ValueError:
        return False


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _converter(hive_type: HiveType) -> Callable[[Any], Any]:
    return lambda value: _value(value, hive_type)


def _value(value: Any, hive_type: HiveType) -> Any:
    if value is None:
        return None
    if hive_type.name in _NESTED:
        return _NESTED[hive_type.name](value, hive_type)
    if hive_type.name in _TEXTS:
        return _text(value, hive_type)
    if isinstance(value, dict | list):
        raise ValueError(f"an object or array is no {hive_type}")
    if hive_type.name == "binary":
        return _binary(value)
    if isinstance(value, bool):
        if hive_type.name != "boolean":
            raise ValueError(f"{str(value).lower()} is no {hive_type}")
        return value
    return value_of(_whole(value) if hive_type.name in INTEGER_BITS else str(value), hive_type)


def _whole(value: Any) -> str:
    """Cut the fraction off, and blanks; of a text with an exponent, too (``NumberInput.parseAsInt``)."""
    text = str(value).strip()
    return str(int(Decimal(text))) if _EXPONENT.match(text) else text


def _text(value: Any, hive_type: HiveType) -> str:
    if isinstance(value, dict | list) and hive_type.name != "string":
        raise ValueError(f"an object or array is no {hive_type}")
    try:
        return value if isinstance(value, str) else _json_text(value)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    except ArithmeticError as error:
        raise ValueError("it holds a number with an exponent that is too large") from error


def _json_text(value: Any) -> str:
    """Write JSON as Jackson does, with numbers without zeros at their ends (``BigDecimal``)."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json_text(key)}:{_json_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json_text, value)) + "]"
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPES)}"'
    if isinstance(value, Decimal):
        with localcontext(prec=max(1, len(value.as_tuple().digits))):
            return str(value.normalize()) if value else "0"
    return "null" if value is None else str(value).lower()


def _binary(value: Any) -> bytes:
    """Take Base64 with its padding; anything else is the bytes themselves."""
    if not isinstance(value, str):
        return _json_text(value).encode()
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        return value.encode()


def _array(value: Any, hive_type: HiveType) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("it is no array")
    return [_value(one, hive_type.children[0]) for one in value]


def _map(value: Any, hive_type: HiveType) -> list[tuple[Any, Any]]:
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    key_type, item_type = hive_type.children
    return [(_value(key, key_type), _value(item, item_type)) for key, item in value.items()]


def _struct(value: Any, hive_type: HiveType) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    by_name = {key.lower(): item for key, item in value.items()}
    return {field.name: _value(by_name.get(field.name.lower()), field.type) for field in hive_type.fields}


_NESTED: dict[str, Callable[[Any, HiveType], Any]] = {"array": _array, "map": _map, "struct": _struct}

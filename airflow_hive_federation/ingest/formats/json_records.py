"""Parses JSON records as Hive's ``StrictJsonWriter`` does with ``JsonSerDe``.

A record is one object. Keys ignore case; keys without a column are ignored; missing keys are null. A text is
parsed as a number in a column of numbers; a number, or an object, becomes a text in a column of texts. Hive's
reader makes 0 of a text that is not a number; such a record is bad here.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
from pyarrow import json as arrow_json

from airflow_hive_federation.ingest.formats.columns import BadRecord, values_column
from airflow_hive_federation.ingest.formats.lazy_values import INTEGER_BITS, value_of
from airflow_hive_federation.ingest.formats.writers import (
    MAX_RECORD_VALUES,
    AbstractRecordWriter,
    Parsed,
    WriterBuilder,
)
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.types import HiveType
from airflow_hive_federation.orc.arrow_columns import arrow_type

# For these types Arrow's reader accepts the same values as this module, or fails.
_AT_ONCE = {"boolean", "tinyint", "smallint", "int", "bigint", "double", "string", "varchar", "char"}
#: Matches text after a closing brace that does not continue an object: perhaps a second value in a record.
_MORE = re.compile(rb"\}[ \t\r\n]*[^ \t\r\n,}\]{]")
#: Matches words that Arrow's reader accepts as numbers and JSON does not.
_NO_NUMBER = re.compile(rb"NaN|Inf")
#: Jackson parses -0 as a whole number, whose double is 0; Arrow's reader makes it -0.
_MINUS_ZERO = re.compile(rb"-0[ \t\r\n,}]")
_EXPONENT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)[eE][+-]?\d{1,3}\Z", re.ASCII)
_TEXTS = {"string", "char", "varchar"}
_ESCAPES = {code: f"\\u{code:04X}" for code in range(32)} | {
    ord(character): f"\\{name}" for character, name in zip('\b\t\n\f\r"\\', 'btnfr"\\', strict=True)
}


class StrictJsonWriter(AbstractRecordWriter):
    """A writer for records of one JSON object each; :meth:`new_builder` makes it."""

    @staticmethod
    def new_builder() -> StrictJsonWriterBuilder:
        """Return a builder of writers."""
        return StrictJsonWriterBuilder()

    def encode(self, record: bytes) -> Sequence[Any]:
        """Return the values of one JSON object, not yet converted to the columns' types."""
        try:
            document = bounded_json.loads(
                record, max_values=MAX_RECORD_VALUES, parse_float=Decimal, parse_constant=_no_constant
            )
        except UnicodeDecodeError as error:
            raise ValueError(f"byte {error.start} is not UTF-8 ({error.reason})") from error
        except ArithmeticError as error:
            raise ValueError("it holds a number with an exponent that is too large") from error
        if not isinstance(document, dict):
            raise ValueError("it is not a JSON object")
        by_name = {key.lower(): value for key, value in document.items()}
        return [by_name.get(column.name) for column in self.columns]

    def parse(self, records: Sequence[bytes]) -> Parsed:
        """Parse records into rows."""
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
            # Arrow's reader accepts texts that are not UTF-8; this call refuses them.
            table.validate(full=True)
        except pa.ArrowInvalid:
            # A record has other keys or types than the columns, or is not JSON: each record is parsed alone.
            return None
        if table.num_rows != len(records) or not table.schema.equals(schema):
            return None
        return table.combine_chunks().to_batches()[0] if table.num_rows else None

    def _each(self, records: Sequence[bytes]) -> Parsed:
        rows: list[Sequence[Any]] = []
        bad: list[BadRecord] = []
        nulls = [None] * len(self.columns)
        for index, record in enumerate(records):
            try:
                rows.append(self.encode(record))
            except ValueError as error:
                rows.append(nulls)
                bad.append(BadRecord(index=index, column="", reason=str(error)))
        arrays = []
        for place, column in enumerate(self.columns):
            array, wrong = values_column([row[place] for row in rows], column, _converter(column.type))
            arrays.append(array)
            if self.malformed == "raise":
                bad += wrong
        return self.without_bad(arrays, bad)


class StrictJsonWriterBuilder(WriterBuilder):
    """A builder of :class:`StrictJsonWriter`."""

    def build(self) -> StrictJsonWriter:
        """Make the writer."""
        return StrictJsonWriter(line_delimiter=self._line, malformed=self._malformed)


def _is_an_object_each(records: Sequence[bytes], blob: bytes) -> bool:
    """Return true if each record is one object, provided that all records together are as many values.

    Arrow's reader parses the records as one text. An object that one record begins and the next one ends
    would become a row; a value that is not an object becomes a row of nulls, or ends the process. No object
    continues from a record that ends with a brace into a record that begins with a brace.

    :param blob: the records, one per line.
    """
    doubtful = [record for record in records if not (record.startswith(b"{") and record.endswith(b"}"))]
    if _MORE.search(blob) or _NO_NUMBER.search(blob):
        doubtful += [record for record in records if _MORE.search(record) or _NO_NUMBER.search(record)]
    return all(map(_is_an_object, doubtful)) and not any(b"\n" in record for record in doubtful)


def _is_an_object(record: bytes) -> bool:
    try:
        return isinstance(bounded_json.loads(record.decode(), parse_constant=_no_constant), dict)
    except ValueError:
        return False


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _converter(hive_type: HiveType) -> Callable[[Any], Any]:
    return lambda value: _value(value, hive_type)


def _value(value: object, hive_type: HiveType) -> Any:
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
    return value_of(_integer_text(value) if hive_type.name in INTEGER_BITS else str(value), hive_type)


def _integer_text(value: object) -> str:
    """Cut off blanks, and the fraction of a number with an exponent (``NumberInput.parseAsInt``)."""
    text = str(value).strip()
    return str(int(Decimal(text))) if _EXPONENT.match(text) else text


def _text(value: object, hive_type: HiveType) -> str:
    if isinstance(value, dict | list) and hive_type.name != "string":
        raise ValueError(f"an object or array is no {hive_type}")
    try:
        return value if isinstance(value, str) else _json_text(value)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    except ArithmeticError as error:
        raise ValueError("it holds a number with an exponent that is too large") from error


def _json_text(value: object) -> str:
    """Write JSON as Jackson does, without trailing zeros of numbers (``BigDecimal``)."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json_text(key)}:{_json_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json_text, value)) + "]"
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPES)}"'
    if isinstance(value, Decimal):
        with localcontext(prec=max(1, len(value.as_tuple().digits))):
            return str(value.normalize()) if value else "0"
    return "null" if value is None else str(value).lower()


def _binary(value: object) -> bytes:
    """Decode Base64 with its padding; return the bytes of any other text."""
    if not isinstance(value, str):
        return _json_text(value).encode()
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        return value.encode()


def _array(value: object, hive_type: HiveType) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("it is not an array")
    return [_value(item, hive_type.children[0]) for item in value]


def _map(value: object, hive_type: HiveType) -> list[tuple[Any, Any]]:
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    key_type, item_type = hive_type.children
    return [(_value(key, key_type), _value(item, item_type)) for key, item in value.items()]


def _struct(value: object, hive_type: HiveType) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    by_name = {key.lower(): item for key, item in value.items()}
    return {field.name: _value(by_name.get(field.name.lower()), field.type) for field in hive_type.fields}


_NESTED: dict[str, Callable[[Any, HiveType], Any]] = {"array": _array, "map": _map, "struct": _struct}

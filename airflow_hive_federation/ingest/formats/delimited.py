"""Parses delimited records as Hive's ``StrictDelimitedInputWriter`` does with ``LazySimpleSerDe``.

The format has no quotes and no escapes: a delimiter inside quotes is a delimiter. ``\\N`` is null; so is an
empty field of a type that is not a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import pyarrow as pa
from pyarrow import csv

from airflow_hive_federation.ingest.errors import InvalidConnection
from airflow_hive_federation.ingest.formats.columns import BadRecord
from airflow_hive_federation.ingest.formats.lazy_values import NULL_TEXT, value_of
from airflow_hive_federation.ingest.formats.writers import (
    MAX_RECORD_VALUES,
    AbstractRecordWriter,
    Malformed,
    Parsed,
    WriterBuilder,
    check_names,
)
from airflow_hive_federation.model.types import Column, HiveType
from airflow_hive_federation.orc.arrow_columns import in_one_piece

# LazySerDeParameters.DefaultSeparators
_DEFAULTS = ("\x01", "\x02", "\x03")
# LazyUtils.isDateMaybe accepts no shorter dates.
_DATE_CHARS = 8
_NESTED = {"array", "map", "struct"}
_DEEPER = tuple(chr(code) for code in range(4, 9))


class StrictDelimitedInputWriter(AbstractRecordWriter):
    r"""A writer for records whose fields a delimiter separates; :meth:`new_builder` makes it.

    Fields are in the order of the table's columns, the dynamic partition keys last.
    """

    def __init__(
        self,
        *,
        field_delimiter: str = _DEFAULTS[0],
        collection_delimiter: str = _DEFAULTS[1],
        map_key_delimiter: str = _DEFAULTS[2],
        line_delimiter: str | bytes | None = None,
        columns: Sequence[str] | None = None,
        malformed: Malformed = "raise",
    ) -> None:
        super().__init__(line_delimiter=line_delimiter, malformed=malformed)
        for name, text in (
            ("field", field_delimiter),
            ("collection", collection_delimiter),
            ("map key", map_key_delimiter),
        ):
            if len(text) != 1 or text == "\n":
                raise InvalidConnection(f"The {name} delimiter is {text!r}.", remedy="Give one character.")
        self._delimiter = field_delimiter
        self._separators = (collection_delimiter, map_key_delimiter, *_DEEPER)
        self._given = columns

    @staticmethod
    def new_builder() -> StrictDelimitedInputWriterBuilder:
        """Return a builder of writers."""
        return StrictDelimitedInputWriterBuilder()

    def bind(self, columns: Sequence[Column]) -> None:
        """Check the record columns and set them as :meth:`AbstractRecordWriter.bind` does."""
        if self._given is not None:
            check_names(self._given, columns)
        super().bind(columns)

    def encode(self, record: bytes) -> Sequence[str | None]:
        """Split one record into texts."""
        text, wanted = record.decode("utf-8"), len(self.columns)
        # The fields are counted first, because a field of one byte takes fifty bytes as a Python text.
        if self.malformed == "raise" and (field_count := text.count(self._delimiter) + 1) != wanted:
            raise ValueError(wrong_width(field_count, wanted))
        parts: list[str | None] = [*text.split(self._delimiter, wanted)[:wanted]]
        parts += [None] * (wanted - len(parts))
        return [None if part == NULL_TEXT else part for part in parts]

    def parse(self, records: Sequence[bytes]) -> Parsed:
        """Parse records into rows."""
        blob = b"\n".join(records)
        texts = self._at_once(blob, len(records)) if self._is_plain(blob, len(records)) else None
        if texts is not None:
            return self.of_texts(texts, [], self._read, NULL_TEXT)
        return self._each(records)

    def _is_plain(self, blob: bytes, count: int) -> bool:
        """Return true if Arrow's reader splits the text into the same fields as :meth:`encode`."""
        return (
            blob.count(b"\n") == count - 1
            and b"\r" not in blob
            and self._delimiter.isascii()
            # Arrow turns an empty line into a row of nulls, and removes a byte order mark.
            and b"\n\n" not in blob
            and not blob.startswith((b"\xef\xbb\xbf", b"\n"))
            and bool(blob)
            and not blob.endswith(b"\n")
        )

    def _at_once(self, blob: bytes, count: int) -> list[pa.Array] | None:
        return self.split_at_once(blob, count, quote=None)

    def split_at_once(self, blob: bytes, count: int, *, quote: str | None) -> list[pa.Array] | None:
        """Split records into columns of texts by Arrow; return ``None`` if it finds others than expected."""
        names = [f"c{place}" for place in range(len(self.columns))]
        try:
            table = csv.read_csv(
                pa.BufferReader(blob),
                read_options=csv.ReadOptions(column_names=names, block_size=len(blob) + 1, use_threads=False),
                parse_options=csv.ParseOptions(
                    delimiter=self._delimiter, quote_char=quote or False, ignore_empty_lines=False
                ),
                convert_options=csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[NULL_TEXT],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:
            # Some record has too few or too many fields, or is not UTF-8.
            return None
        if table.num_rows != count:
            return None
        return [in_one_piece(column) for column in table.columns]

    def _each(self, records: Sequence[bytes]) -> Parsed:
        bad: list[BadRecord] = []
        rows: list[Sequence[str | None]] = []
        nulls: list[str | None] = [None] * len(self.columns)
        for index, record in enumerate(records):
            try:
                rows.append(self.encode(record))
            except UnicodeDecodeError as error:
                rows.append(nulls)
                reason = f"byte {error.start} is not UTF-8 ({error.reason})"
                bad.append(BadRecord(index=index, column=self._column_at(record, error.start), reason=reason))
            except ValueError as error:
                rows.append(nulls)
                bad.append(BadRecord(index=index, column="", reason=str(error)))
        texts = [pa.array([row[place] for row in rows], pa.string()) for place in range(len(self.columns))]
        return self.of_texts(texts, bad, self._read, NULL_TEXT)

    def _read(self, text: str, hive_type: HiveType) -> Any:
        if hive_type.name == "date" and len(text) < _DATE_CHARS:
            raise ValueError(f"{text!r} is not a date like 2026-01-31")
        if hive_type.name in _NESTED and sum(map(text.count, self._separators)) > MAX_RECORD_VALUES:
            raise ValueError(f"it holds more than {MAX_RECORD_VALUES} values")
        return value_of(text, hive_type, self._separators, lenient=self.malformed == "null")

    def _column_at(self, record: bytes, byte: int) -> str:
        place = record[:byte].count(self._delimiter.encode())
        return self.columns[place].name if place < len(self.columns) else ""


class StrictDelimitedInputWriterBuilder(WriterBuilder):
    """A builder of :class:`StrictDelimitedInputWriter`, with the method names of Hive's builder."""

    def __init__(self) -> None:
        super().__init__()
        self._field, self._collection, self._map_key = _DEFAULTS
        self._columns: Sequence[str] | None = None

    def with_field_delimiter(self, delimiter: str) -> Self:
        """Set the character between fields (``\\x01``)."""
        self._field = delimiter
        return self

    def with_collection_delimiter(self, delimiter: str) -> Self:
        """Set the character between the elements of an array, map or struct (``\\x02``)."""
        self._collection = delimiter
        return self

    def with_map_key_delimiter(self, delimiter: str) -> Self:
        """Set the character between the keys and values of a map (``\\x03``)."""
        self._map_key = delimiter
        return self

    def with_columns(self, names: Sequence[str]) -> Self:
        """Set the names of the record columns, for instance from a header; connecting checks them."""
        self._columns = names
        return self

    def build(self) -> StrictDelimitedInputWriter:
        """Make the writer.

        :raises InvalidConnection: a delimiter is not one character.
        """
        return StrictDelimitedInputWriter(
            field_delimiter=self._field,
            collection_delimiter=self._collection,
            map_key_delimiter=self._map_key,
            line_delimiter=self._line,
            columns=self._columns,
            malformed=self._malformed,
        )


def wrong_width(fields: int, wanted: int) -> str:
    """Return the reason why a record with another number of fields than columns is bad."""
    return f"it has {fields} {'field' if fields == 1 else 'fields'}, but there are {wanted} columns"

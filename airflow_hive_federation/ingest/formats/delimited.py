"""Delimited records, as Hive's ``StrictDelimitedInputWriter`` reads them by ``LazySimpleSerDe``.

Nothing is quoted and nothing escaped: a delimiter inside quotes is a delimiter. ``\\N`` is null; so is an
empty field that is not a text.
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
    check_names,
)
from airflow_hive_federation.model.types import Column, HiveType
from airflow_hive_federation.orc.arrow_columns import in_one_piece

# LazySerDeParameters.DefaultSeparators
_DEFAULTS = ("\x01", "\x02", "\x03")
# LazyUtils.isDateMaybe takes no shorter ones.
_DATE_CHARS = 8
_NESTED = {"array", "map", "struct"}
_DEEPER = tuple(chr(code) for code in range(4, 9))


class StrictDelimitedInputWriter(AbstractRecordWriter):
    r"""Records of fields with a delimiter between them; made by :meth:`new_builder`.

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
        for name, one in (
            ("field", field_delimiter),
            ("collection", collection_delimiter),
            ("map key", map_key_delimiter),
        ):
            if len(one) != 1 or one == "\n":
                raise InvalidConnection(f"The {name} delimiter is {one!r}.", remedy="Give one character.")
        self._delimiter = field_delimiter
        self._separators = (collection_delimiter, map_key_delimiter, *_DEEPER)
        self._given = columns

    @staticmethod
    def new_builder() -> StrictDelimitedInputWriterBuilder:
        """Begin to describe one."""
        return StrictDelimitedInputWriterBuilder()

    def bind(self, columns: Sequence[Column]) -> None:
        """See :meth:`AbstractRecordWriter.bind`."""
        if self._given is not None:
            check_names(self._given, columns)
        super().bind(columns)

    def encode(self, record: bytes) -> Sequence[str | None]:
        """Split one record into texts."""
        text, wanted = record.decode("utf-8"), len(self.columns)
        # Counted first: a field may be a byte of a record, and is fifty in memory.
        if self.malformed == "raise" and (found := text.count(self._delimiter) + 1) != wanted:
            raise ValueError(_wrong_width(found, wanted))
        parts: list[str | None] = [*text.split(self._delimiter, wanted)[:wanted]]
        parts += [None] * (wanted - len(parts))
        return [None if part == NULL_TEXT else part for part in parts]

    def parse(self, records: Sequence[bytes]) -> Parsed:
        """Make rows of records."""
        blob = b"\n".join(records)
        texts = self._at_once(blob, len(records)) if self._is_plain(blob, len(records)) else None
        if texts is not None:
            return self.of_texts(texts, [], self._read, NULL_TEXT)
        return self._each(records)

    def _is_plain(self, blob: bytes, count: int) -> bool:
        """Whether Arrow's reader splits the text where we would."""
        return (
            blob.count(b"\n") == count - 1
            and b"\r" not in blob
            and self._delimiter.isascii()
            # For Arrow an empty line is a row of nulls, and a byte order mark no part of a field.
            and b"\n\n" not in blob
            and not blob.startswith((b"\xef\xbb\xbf", b"\n"))
            and bool(blob)
            and not blob.endswith(b"\n")
        )

    def _at_once(self, blob: bytes, count: int) -> list[pa.Array] | None:
        names = [f"c{place}" for place in range(len(self.columns))]
        try:
            table = csv.read_csv(
                pa.BufferReader(blob),
                read_options=csv.ReadOptions(column_names=names, block_size=len(blob) + 1, use_threads=False),
                parse_options=csv.ParseOptions(
                    delimiter=self._delimiter, quote_char=False, ignore_empty_lines=False
                ),
                convert_options=csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[NULL_TEXT],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid:
            # Too few or too many fields somewhere, or no UTF-8.
            return None
        if table.num_rows != count:
            return None
        return [in_one_piece(column) for column in table.columns]

    def _each(self, records: Sequence[bytes]) -> Parsed:
        bad: list[BadRecord] = []
        rows: list[Sequence[str | None]] = []
        nothing: list[str | None] = [None] * len(self.columns)
        for index, record in enumerate(records):
            try:
                rows.append(self.encode(record))
            except UnicodeDecodeError as error:
                rows.append(nothing)
                reason = f"byte {error.start} is not UTF-8 ({error.reason})"
                bad.append(BadRecord(index=index, column=self._column_at(record, error.start), reason=reason))
            except ValueError as error:
                rows.append(nothing)
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


class StrictDelimitedInputWriterBuilder:
    """Describes a :class:`StrictDelimitedInputWriter`; the names are those of Hive's builder."""

    def __init__(self) -> None:
        self._field, self._collection, self._map_key = _DEFAULTS
        self._line: str | bytes | None = None
        self._columns: Sequence[str] | None = None
        self._malformed: Malformed = "raise"

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

    def with_line_delimiter(self, delimiter: str | bytes) -> Self:
        """Set what ends a record of a stream (a line feed). It is taken literally, not as a pattern."""
        self._line = delimiter
        return self

    def with_columns(self, names: Sequence[str]) -> Self:
        """Say which columns the records have, from a header for instance; checked when connecting."""
        self._columns = names
        return self

    def with_malformed(self, malformed: Malformed) -> Self:
        """``raise`` for malformed records, or ``null`` to do as Hive's SerDe does."""
        self._malformed = malformed
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


def _wrong_width(found: int, wanted: int) -> str:
    return f"it has {found} {'field' if found == 1 else 'fields'}, but there are {wanted} columns"

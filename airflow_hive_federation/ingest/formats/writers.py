"""Defines the base of record writers, which parse records into rows.

A writer gets the table's columns when the connection is made, and then parses records, many at a time. It
does not know transactions, partitions or files. A writer of your own derives from
:class:`AbstractRecordWriter`, whose ``encode`` turns one record into a sequence of values; a writer that can
parse many records at once overrides ``parse``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import pyarrow as pa

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.ingest.errors import InvalidColumn, InvalidConnection
from airflow_hive_federation.ingest.formats.columns import BadRecord, column_of, values_column
from airflow_hive_federation.model.types import Column, HiveType
from airflow_hive_federation.orc.early_timestamps import storable
from airflow_hive_federation.orc.timestamps import has_unstorable_timestamp

Malformed = Literal["raise", "null"]

#: Limits the bytes of a record by default. A record takes about seven times its bytes in memory.
MAX_RECORD_BYTES = 128 << 20
#: Limits the values of a record in arrays, maps and structs: a value of one byte takes 100 bytes of memory.
MAX_RECORD_VALUES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """The rows of parsed records.

    :param rows: the table's columns, then the partition keys whose values come from the records.
    :param bad: the bad records, which have no row.
    """

    rows: pa.RecordBatch
    bad: Sequence[BadRecord] = field(default_factory=tuple)


class AbstractRecordWriter(ABC):
    """Base of all record writers.

    :param line_delimiter: ends a record of a stream; by default a line feed, with or without a carriage
        return before it.
    :param malformed: treatment of a record that has too many or too few fields, or an unreadable value:
        ``raise`` makes it a bad record; ``null`` does as Hive's SerDe does (nulls for missing or unreadable
        values, surplus fields dropped).
    """

    def __init__(self, *, line_delimiter: str | bytes | None = None, malformed: Malformed = "raise") -> None:
        if malformed not in {"raise", "null"}:
            raise InvalidConnection(f"malformed is {malformed!r}.", remedy="Say 'raise' or 'null'.")
        encoded = line_delimiter.encode() if isinstance(line_delimiter, str) else line_delimiter
        self.line_delimiter: bytes | None = encoded
        self.malformed = malformed
        self.columns: tuple[Column, ...] = ()
        #: Limits the bytes of a record; longer records are bad. The caller may change it.
        self.max_record_bytes = MAX_RECORD_BYTES

    def bind(self, columns: Sequence[Column]) -> None:
        """Set the columns of the records: the table's, then the dynamic partition keys.

        :raises InvalidColumn: the records' columns are known beforehand and differ from these.
        """
        self.columns = tuple(columns)

    def parse(self, records: Sequence[bytes]) -> Parsed:
        """Parse records into rows, each by :meth:`encode`."""
        values: list[Sequence[Any] | None] = []
        bad: list[BadRecord] = []
        for index, record in enumerate(records):
            try:
                row = self.encode(record)
                if len(row) != len(self.columns):
                    raise ValueError(f"it has {len(row)} values, but there are {len(self.columns)} columns")
                values.append(row)
            except ValueError as error:
                values.append(None)
                bad.append(BadRecord(index=index, column="", reason=str(error)))
        arrays = []
        for place, column in enumerate(self.columns):
            listed = [None if row is None else row[place] for row in values]
            array, wrong = values_column(listed, column, lambda value: value)
            arrays.append(array)
            bad += wrong
        return self.without_bad(arrays, bad)

    @abstractmethod
    def encode(self, record: bytes) -> Sequence[Any]:
        """Return the values of one record, in the order of :attr:`columns`; ``None`` is null.

        :raises ValueError: the record cannot be parsed; the message gives the reason.
        """

    def of_texts(
        self,
        texts: Sequence[pa.Array],
        bad: Sequence[BadRecord],
        read: Callable[[str, HiveType], object],
        null_text: str | None = None,
    ) -> Parsed:
        """Convert columns of texts to rows.

        :param bad: records that are already known to be bad.
        :param read: parses a text; see :func:`.columns.column_of`.
        """
        arrays, all_bad = [], [*bad]
        for text, column in zip(texts, self.columns, strict=True):
            array, wrong = column_of(text, column, read, null_text)
            arrays.append(array)
            if self.malformed == "raise":
                all_bad += wrong
        return self.without_bad(arrays, all_bad)

    def without_bad(self, arrays: Sequence[pa.Array], bad: Sequence[BadRecord]) -> Parsed:
        """Remove the bad records from the rows, and keep the first reason of each bad record."""
        bad = [*bad]
        for array, column in zip(arrays, self.columns, strict=True):
            bad += unstorable(array, column)
        rows = pa.RecordBatch.from_arrays(list(arrays), names=[column.name for column in self.columns])
        if not bad:
            return Parsed(rows=rows)
        first: dict[int, BadRecord] = {}
        for bad_record in bad:
            first.setdefault(bad_record.index, bad_record)
        mask = pa.array([index not in first for index in range(rows.num_rows)])
        return Parsed(rows=rows.filter(mask), bad=[first[index] for index in sorted(first)])


def check_names(given: Sequence[str], columns: Sequence[Column]) -> None:
    """Check that records have the table's columns, in the table's order.

    :raises InvalidColumn: columns are missing, unknown or in another order; the error names them.
    """
    names = [name.lower() for name in given]
    wanted = [column.name for column in columns]
    if names == wanted:
        return
    missing = [name for name in wanted if name not in names]
    unknown = [name for name in names if name not in wanted]
    differences = [f"lack {', '.join(missing)}"] if missing else []
    differences += [f"have {', '.join(unknown)}, which the table lacks"] if unknown else []
    raise InvalidColumn(
        f"The records {' and '.join(differences) or 'have their columns in another order'}.",
        remedy=f"Give them these, partition keys last: {', '.join(wanted)}.",
        missing=missing,
        unknown=unknown,
    )


def unstorable(array: pa.Array, column: Column) -> list[BadRecord]:
    """Return the values that ORC cannot store: fractions in the last second before 1970."""
    if not has_unstorable_timestamp(array):
        return []
    return [BadRecord(index=index, column=column.name, reason=reason) for index, reason in _refused(array, 0)]


def _refused(array: pa.Array, first: int) -> Iterator[tuple[int, str]]:
    try:
        storable(pa.table([array], names=["refused"]))
    except AcidFormatError as error:
        if len(array) == 1:
            yield first, error.message
            return
        half = len(array) // 2
        yield from _refused(array.slice(0, half), first)
        yield from _refused(array.slice(half), first + half)


class WriterBuilder:
    """Base of the writers' builders, with the method names of Hive's builders."""

    def __init__(self) -> None:
        self._line: str | bytes | None = None
        self._malformed: Malformed = "raise"

    def with_line_delimiter(self, delimiter: str | bytes) -> Self:
        """Set the literal delimiter, not a pattern, that ends a record of a stream (a line feed)."""
        self._line = delimiter
        return self

    def with_malformed(self, malformed: Malformed) -> Self:
        """Set the treatment of malformed records: ``raise``, or ``null`` for the behavior of Hive's SerDe."""
        self._malformed = malformed
        return self

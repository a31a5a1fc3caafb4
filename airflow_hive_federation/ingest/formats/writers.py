"""What makes rows of records.

A writer is told the table's columns when the connection is made, and then parses records, many at a time. It
knows nothing of transactions, partitions or files. One of your own derives from :class:`AbstractRecordWriter`
and says how one record becomes a sequence of values; one that can parse many at once overrides ``parse``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.ingest.errors import InvalidColumn, InvalidConnection
from airflow_hive_federation.ingest.formats.columns import BadRecord, column_of, values_column
from airflow_hive_federation.model.types import Column, HiveType
from airflow_hive_federation.orc.early_timestamps import storable
from airflow_hive_federation.orc.timestamps import has_unstorable_timestamp

Malformed = Literal["raise", "null"]

#: Bytes that a record may have, unless the writer is set to more. It takes some seven times that in memory.
MAX_RECORD_BYTES = 128 << 20
#: Values that a record may hold, in arrays, maps and structs: one of a byte takes a hundred bytes of memory.
MAX_RECORD_VALUES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """Rows made of records.

    :param rows: the table's columns, then the partition keys whose values come from the records.
    :param bad: the records that are not among the rows.
    """

    rows: pa.RecordBatch
    bad: Sequence[BadRecord] = field(default_factory=tuple)


class AbstractRecordWriter(ABC):
    """Base of all writers.

    :param line_delimiter: what ends a record of a stream; by default a line feed, with or without a carriage
        return before it.
    :param malformed: what to do with a record that has too many or too few fields, or a value that cannot be
        read: ``raise`` finds it bad; ``null`` does as Hive's SerDe does (nulls, and fields too many dropped).
    """

    def __init__(self, *, line_delimiter: str | bytes | None = None, malformed: Malformed = "raise") -> None:
        if malformed not in {"raise", "null"}:
            raise InvalidConnection(f"malformed is {malformed!r}.", remedy="Say 'raise' or 'null'.")
        encoded = line_delimiter.encode() if isinstance(line_delimiter, str) else line_delimiter
        self.line_delimiter: bytes | None = encoded
        self.malformed = malformed
        self.columns: tuple[Column, ...] = ()
        #: Bytes that a record may have; longer ones are bad. May be set.
        self.max_record_bytes = MAX_RECORD_BYTES

    def bind(self, columns: Sequence[Column]) -> None:
        """Take the columns that records have: the table's, then the dynamic partition keys.

        :raises InvalidColumn: the records' columns, as far as they are known beforehand, are others.
        """
        self.columns = tuple(columns)

    def parse(self, records: Sequence[bytes]) -> Parsed:
        """Make rows of records, by :meth:`encode` for each."""
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

        :raises ValueError: it cannot be parsed; say why.
        """

    def of_texts(
        self,
        texts: Sequence[pa.Array],
        bad: Sequence[BadRecord],
        read: Callable[[str, HiveType], Any],
        null_text: str | None = None,
    ) -> Parsed:
        """Make rows of columns of texts.

        :param bad: records that are known to be bad already.
        :param read: reads a text; see :func:`.columns.column_of`.
        """
        arrays, found = [], [*bad]
        for text, column in zip(texts, self.columns, strict=True):
            array, wrong = column_of(text, column, read, null_text)
            arrays.append(array)
            if self.malformed == "raise":
                found += wrong
        return self.without_bad(arrays, found)

    def without_bad(self, arrays: Sequence[pa.Array], bad: Sequence[BadRecord]) -> Parsed:
        """Take the bad records out of rows, and keep the first reason of each."""
        bad = [*bad]
        for array, column in zip(arrays, self.columns, strict=True):
            bad += unstorable(array, column)
        rows = pa.RecordBatch.from_arrays(list(arrays), names=[column.name for column in self.columns])
        if not bad:
            return Parsed(rows=rows)
        first: dict[int, BadRecord] = {}
        for one in bad:
            first.setdefault(one.index, one)
        mask = pa.array([index not in first for index in range(rows.num_rows)])
        return Parsed(rows=rows.filter(mask), bad=[first[index] for index in sorted(first)])


def check_names(given: Sequence[str], columns: Sequence[Column]) -> None:
    """Make sure that records have the table's columns, in its order.

    :raises InvalidColumn: naming those that are missing, unknown, or in another place.
    """
    names = [name.lower() for name in given]
    wanted = [column.name for column in columns]
    if names == wanted:
        return
    missing = [name for name in wanted if name not in names]
    unknown = [name for name in names if name not in wanted]
    told = [f"lack {', '.join(missing)}"] if missing else []
    told += [f"have {', '.join(unknown)}, which the table has not"] if unknown else []
    raise InvalidColumn(
        f"The records {' and '.join(told) or 'have their columns in another order'}.",
        remedy=f"Give them these, partition keys last: {', '.join(wanted)}.",
        missing=missing,
        unknown=unknown,
    )


def unstorable(array: pa.Array, column: Column) -> list[BadRecord]:
    """Find the values that ORC cannot store: fractions in the last second before 1970."""
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

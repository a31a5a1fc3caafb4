"""Parses quoted CSV as RFC 4180 describes it, which Hive's ``LazySimpleSerDe`` does not read.

A field is quoted if it begins with the quote. It may then hold delimiters and line feeds, and doubled quotes
stand for one. A quote inside an unquoted field is text, as for Python's ``csv`` and Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.ingest.formats.delimited import StrictDelimitedInputWriter, wrong_width
from airflow_hive_federation.ingest.formats.lazy_values import NULL_TEXT
from airflow_hive_federation.ingest.formats.writers import Malformed

QUOTE = '"'


@dataclass(frozen=True)
class Dialect:
    """The delimiter and the quote of CSV.

    :raises ConfigurationError: one of them is not one character, or both are the same.
    """

    delimiter: str = ","
    quote: str = QUOTE

    def __post_init__(self) -> None:
        if len(self.quote) != 1 or not self.quote.isascii() or self.quote in {"\n", "\r", self.delimiter}:
            raise ConfigurationError(
                f"The quote of csv is {self.quote!r}.",
                remedy="Give one ASCII character other than the delimiter, or an empty text for files "
                "without quotes (quote, --quote).",
            )

    def stays_open(self, line: bytes, opened: bool) -> bool:
        """Return true if a quote is open at the end of a line, so that the record goes on in the next one.

        :param opened: a quote is open at its beginning.
        """
        quote, delimiter, at = self.quote.encode(), self.delimiter.encode(), 0
        if not opened:
            opened = line.startswith(quote)
            at = int(opened)
        while True:
            while opened:
                at = line.find(quote, at)
                if at < 0:
                    return True
                opened = line.startswith(quote, at + 1)
                at += 1 + opened
            at = line.find(delimiter, at)
            if at < 0:
                return False
            at += len(delimiter)
            opened = line.startswith(quote, at)
            at += opened

    def encloses_fields(self, lines: bytes) -> bool:
        """Return whether each quote begins or ends a whole field of one line, and no quote is missing.

        Arrow and :meth:`fields` then split the lines into the same fields. Otherwise they may not: Arrow
        takes text behind a closed quote, and closes one that is open at the end.

        :param lines: lines of a dialect whose delimiter is ASCII.
        """
        if self.quote.encode() not in lines:
            return True
        characters = np.frombuffer(b"\n%b\n" % lines, np.uint8)
        quotes = np.flatnonzero(characters == ord(self.quote))
        if len(quotes) % 2:
            return False
        # By induction: outside of quotes, the next one opens a field, and the one after it closes the field.
        opening, closing = quotes[0::2], quotes[1::2]
        feeds = np.flatnonzero(characters == ord("\n"))
        borders = np.zeros(256, np.bool_)
        borders[[ord("\n"), ord(self.delimiter)]] = True
        return bool(
            borders[characters[opening - 1]].all()
            and borders[characters[closing + 1]].all()
            and (np.searchsorted(feeds, opening) == np.searchsorted(feeds, closing)).all()
        )

    def fields(self, record: str, most: int, *, lenient: bool = False) -> tuple[list[str | None], int]:
        r"""Split a record; an unquoted ``\N`` is null.

        :param most: the number of fields to return; the others are only counted.
        :param lenient: take text behind a closed quote, and a quote that is not closed, as Python's ``csv``.
        :return: the first fields, and the number of all.
        :raises ValueError: a quote is not closed, or text follows a closed quote.
        """
        parts: list[str | None] = []
        count = at = 0
        while True:
            part: str | None
            if record.startswith(self.quote, at):
                part, at = self._quoted(record, at, lenient)
            else:
                end = self._end(record, at)
                part, at = record[at:end], end
                part = None if part == NULL_TEXT else part
            count += 1
            if count <= most:
                parts.append(part)
            if at == len(record):
                return parts, count
            at += len(self.delimiter)

    def _end(self, record: str, at: int) -> int:
        end = record.find(self.delimiter, at)
        return len(record) if end < 0 else end

    def _quoted(self, record: str, at: int, lenient: bool) -> tuple[str, int]:
        pieces, start = [], at + 1
        while (end := record.find(self.quote, start)) >= 0 and record.startswith(self.quote, end + 1):
            pieces.append(record[start : end + 1])
            start = end + 2
        if end < 0:
            if not lenient:
                raise ValueError(f"the quote at its character {at + 1} is not closed")
            return "".join((*pieces, record[start:])), len(record)
        behind = self._end(record, end + 1)
        if behind > end + 1 and not lenient:
            raise ValueError(f"text follows the quote that ends at its character {end + 1}")
        return "".join((*pieces, record[start:end], record[end + 1 : behind])), behind


class RecordJoiner:
    """Joins the lines of records whose quotes hold line feeds.

    :param line: number of lines before those that :meth:`join` gets.
    """

    def __init__(self, dialect: Dialect, line: int) -> None:
        self._dialect = dialect
        self._quote = dialect.quote.encode()
        self._line = line
        #: The lines of the record that has not ended yet.
        self.open: list[bytes] = []

    def join(self, lines: Sequence[bytes]) -> tuple[list[bytes], Sequence[int]]:
        """Return the records that end in these lines, and the number of the first line of each, from 1."""
        before = self._line
        self._line += len(lines)
        if not self.open and not any(self._quote in line for line in lines):
            return [_without_return(line) for line in lines], range(before + 1, self._line + 1)
        records, firsts = [], []
        for number, line in enumerate(lines, before + 1):
            opened = bool(self.open)
            self.open.append(line)
            if (opened or self._quote in line) and self._dialect.stays_open(line, opened):
                continue
            firsts.append(number - len(self.open) + 1)
            records.append(_without_return(b"\n".join(self.open)))
            self.open = []
        return records, firsts

    def rest(self) -> tuple[list[bytes], Sequence[int]]:
        """Return the record at the end of a file whose quote is not closed, if there is one."""
        rest, self.open = self.open, []
        return ([b"\n".join(rest)], [self._line - len(rest) + 1]) if rest else ([], [])


class QuotedInputWriter(StrictDelimitedInputWriter):
    """A writer for records of quoted CSV; values are those of :class:`.StrictDelimitedInputWriter`."""

    def __init__(
        self,
        *,
        dialect: Dialect | None = None,
        columns: Sequence[str] | None = None,
        malformed: Malformed = "raise",
    ) -> None:
        self._dialect = dialect or Dialect()
        super().__init__(field_delimiter=self._dialect.delimiter, columns=columns, malformed=malformed)

    def encode(self, record: bytes) -> Sequence[str | None]:
        """Split one record into texts."""
        wanted, lenient = len(self.columns), self.malformed == "null"
        parts, count = self._dialect.fields(record.decode("utf-8"), wanted, lenient=lenient)
        if count != wanted and not lenient:
            raise ValueError(wrong_width(count, wanted))
        return parts + [None] * (wanted - len(parts))

    def _is_plain(self, blob: bytes, count: int) -> bool:
        return super()._is_plain(blob, count) and self._dialect.encloses_fields(blob)

    def _at_once(self, blob: bytes, count: int) -> list[pa.Array] | None:
        return self.split_at_once(blob, count, quote=self._dialect.quote)


def _without_return(record: bytes) -> bytes:
    return record[:-1] if record.endswith(b"\r") else record

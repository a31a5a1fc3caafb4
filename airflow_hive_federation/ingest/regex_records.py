"""Records taken apart by a regular expression, as Hive's ``StrictRegexWriter`` does by ``RegexSerDe``.

The expression has to match the whole record; its groups are the columns, dynamic partition keys last. A group
that took no part is null. It is Python's dialect, which differs from Java's in little (``(?<name>…)`` is
``(?P<name>…)``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Self

import pyarrow as pa

from airflow_hive_federation.ingest.columns import BadRecord
from airflow_hive_federation.ingest.errors import InvalidColumn, InvalidConnection
from airflow_hive_federation.ingest.lazy_values import INTEGER_BITS, value_of
from airflow_hive_federation.ingest.writers import AbstractRecordWriter, Malformed, Parsed
from airflow_hive_federation.model.types import Column, HiveType

_WHOLE = re.compile(r"[+-]?\d{1,100}\Z")


class StrictRegexWriter(AbstractRecordWriter):
    """Records that match an expression; made by :meth:`new_builder`."""

    def __init__(
        self,
        regex: str,
        *,
        line_delimiter: str | bytes | None = None,
        malformed: Malformed = "raise",
    ) -> None:
        super().__init__(line_delimiter=line_delimiter, malformed=malformed)
        try:
            self._regex = re.compile(regex, re.DOTALL)
        except re.error as error:
            raise InvalidConnection(f"{regex!r} is no regular expression: {error}.") from error

    @staticmethod
    def new_builder() -> StrictRegexWriterBuilder:
        """Begin to describe one."""
        return StrictRegexWriterBuilder()

    def bind(self, columns: Sequence[Column]) -> None:
        """See :meth:`AbstractRecordWriter.bind`."""
        if self._regex.groups != len(columns):
            raise InvalidColumn(
                f"The expression has {self._regex.groups} groups, but there are {len(columns)} columns.",
                remedy=f"Make a group for each of {', '.join(column.name for column in columns)}.",
            )
        super().bind(columns)

    def encode(self, record: bytes) -> Sequence[str | None]:
        """Return the groups of one record."""
        match = self._regex.fullmatch(record.decode("utf-8"))
        if match is None:
            if self.malformed == "raise":
                raise ValueError("it does not match the expression")
            return [None] * len(self.columns)
        return match.groups()

    def parse(self, records: Sequence[bytes]) -> Parsed:
        """Make rows of records."""
        rows: list[Sequence[str | None]] = []
        bad: list[BadRecord] = []
        nothing = [None] * len(self.columns)
        for index, record in enumerate(records):
            try:
                rows.append(self.encode(record))
            except ValueError as error:
                rows.append(nothing)
                bad.append(BadRecord(index=index, column="", reason=str(error)))
        texts = [pa.array([row[place] for row in rows], pa.string()) for place in range(len(self.columns))]
        return self.of_texts(texts, bad, _value)


class StrictRegexWriterBuilder:
    """Describes a :class:`StrictRegexWriter`; the names are those of Hive's builder."""

    def __init__(self) -> None:
        self._regex = ""
        self._line: str | bytes | None = None
        self._malformed: Malformed = "raise"

    def with_regex(self, regex: str) -> Self:
        """Set the expression."""
        self._regex = regex
        return self

    def with_line_delimiter(self, delimiter: str | bytes) -> Self:
        """Set what ends a record of a stream (a line feed). It is taken literally, not as a pattern."""
        self._line = delimiter
        return self

    def with_malformed(self, malformed: Malformed) -> Self:
        """``raise`` for records that do not match or values that cannot be read, or ``null``."""
        self._malformed = malformed
        return self

    def build(self) -> StrictRegexWriter:
        """Make the writer.

        :raises InvalidConnection: the expression is none.
        """
        return StrictRegexWriter(self._regex, line_delimiter=self._line, malformed=self._malformed)


def _value(text: str, hive_type: HiveType) -> Any:
    """Read a group as ``valueOf`` of Java's classes does: whole numbers have no fractions."""
    if hive_type.name in INTEGER_BITS:
        if not _WHOLE.match(text):
            raise ValueError(f"{text[:80]!r} is not a whole number")
        # Digits may be those of any script.
        text = str(int(text))
    return value_of(text, hive_type)

"""Parses records by a regular expression, as Hive's ``StrictRegexWriter`` does with ``RegexSerDe``.

The expression has to match the whole record; its groups are the columns, dynamic partition keys last. A group
without a match is null. The dialect is Python's, which differs little from Java's (``(?<name>…)`` is
``(?P<name>…)``).
"""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Self

import pyarrow as pa

from airflow_hive_federation.ingest.errors import InvalidColumn, InvalidConnection, StreamingIOFailure
from airflow_hive_federation.ingest.formats import regex_child
from airflow_hive_federation.ingest.formats.columns import BadRecord
from airflow_hive_federation.ingest.formats.lazy_values import INTEGER_BITS, value_of
from airflow_hive_federation.ingest.formats.writers import (
    AbstractRecordWriter,
    Malformed,
    Parsed,
    WriterBuilder,
)
from airflow_hive_federation.model.types import Column, HiveType
from airflow_hive_federation.runtime.environment import without_secrets

#: Limits the processor time per record, in seconds.
LIMIT_S = 1.0
#: If this many records of a batch exceed the time limit, the later records are not tried.
_GIVE_UP_AFTER = 10
_WHOLE = re.compile(r"[+-]?\d{1,100}\Z")


class StrictRegexWriter(AbstractRecordWriter):
    """A writer for records that match a regular expression; :meth:`new_builder` makes it.

    :param limit_s: seconds of processor time that the expression may take per record. Some expressions take
        a time that doubles with each character of a record; a record that exceeds the limit is bad.
    """

    def __init__(
        self,
        regex: str,
        *,
        line_delimiter: str | bytes | None = None,
        malformed: Malformed = "raise",
        limit_s: float = LIMIT_S,
    ) -> None:
        super().__init__(line_delimiter=line_delimiter, malformed=malformed)
        try:
            self._regex = re.compile(regex, re.DOTALL)
        except (re.error, RecursionError, OverflowError) as error:
            raise InvalidConnection(f"{regex!r} is not a regular expression: {error}.") from error
        if limit_s <= 0:
            raise InvalidConnection(f"limit_s is {limit_s}.", remedy="Give a number of seconds above 0.")
        self._limit_s = limit_s

    @staticmethod
    def new_builder() -> StrictRegexWriterBuilder:
        """Return a builder of writers."""
        return StrictRegexWriterBuilder()

    def bind(self, columns: Sequence[Column]) -> None:
        """Check the number of groups and set the columns as :meth:`AbstractRecordWriter.bind` does."""
        if self._regex.groups != len(columns):
            raise InvalidColumn(
                f"The expression has {self._regex.groups} groups, but there are {len(columns)} columns.",
                remedy=f"Make a group for each of {', '.join(column.name for column in columns)}.",
            )
        super().bind(columns)

    def encode(self, record: bytes) -> Sequence[str | None]:
        """Return the groups of one record."""
        (match,) = self._matched([record.decode("utf-8")])
        return self._groups(match)

    def parse(self, records: Sequence[bytes]) -> Parsed:
        """Parse records into rows."""
        texts: list[str] = []
        bad: list[BadRecord] = []
        for index, record in enumerate(records):
            try:
                texts.append(record.decode("utf-8"))
            except UnicodeDecodeError as error:
                texts.append("")
                bad.append(BadRecord(index=index, column="", reason=str(error)))
        rows: list[Sequence[str | None]] = []
        for index, match in enumerate(self._matched(texts)):
            try:
                rows.append(self._groups(match))
            except ValueError as error:
                rows.append([None] * len(self.columns))
                bad.append(BadRecord(index=index, column="", reason=str(error)))
        groups = [pa.array([row[place] for row in rows], pa.string()) for place in range(len(self.columns))]
        return self.of_texts(groups, bad, _value)

    def _groups(self, groups: list[str | None] | str | None) -> Sequence[str | None]:
        if isinstance(groups, str):
            raise ValueError(groups)
        if groups is None:
            if self.malformed == "raise":
                raise ValueError("it does not match the expression")
            return [None] * len(self.columns)
        return groups

    def _matched(self, texts: Sequence[str]) -> list[list[str | None] | str | None]:
        """Match texts in a separate process; return groups, ``None`` for no match, or a reason per text."""
        request = {
            "regex": self._regex.pattern,
            "texts": texts,
            "limit_s": self._limit_s,
            "give_up_after": _GIVE_UP_AFTER,
        }
        try:
            completed = subprocess.run(
                [sys.executable, "-I", "-S", "-X", "utf8", "-c", inspect.getsource(regex_child)],
                env=without_secrets(),
                input=json.dumps(request).encode(),
                capture_output=True,
                check=True,
            )
            answer: list[list[str | None] | str | None] = json.loads(completed.stdout)
        except (OSError, subprocess.CalledProcessError, ValueError) as error:
            stderr = getattr(error, "stderr", b"") or b""
            raise StreamingIOFailure(
                f"Matching records has failed: {error}. {stderr[-500:].decode(errors='replace')}",
                remedy="Look whether memory is short; then write the transaction's records again.",
            ) from error
        return answer


class StrictRegexWriterBuilder(WriterBuilder):
    """A builder of :class:`StrictRegexWriter`, with the method names of Hive's builder."""

    def __init__(self) -> None:
        super().__init__()
        self._regex = ""
        self._limit_s = LIMIT_S

    def with_regex(self, regex: str) -> Self:
        """Set the regular expression."""
        self._regex = regex
        return self

    def with_limit_s(self, seconds: float) -> Self:
        """Set the limit of processor time per record (1 s); a record that exceeds it is bad."""
        self._limit_s = seconds
        return self

    def build(self) -> StrictRegexWriter:
        """Make the writer.

        :raises InvalidConnection: the expression is not a valid regular expression.
        """
        return StrictRegexWriter(
            self._regex, line_delimiter=self._line, malformed=self._malformed, limit_s=self._limit_s
        )


def _value(text: str, hive_type: HiveType) -> object:
    """Parse a group as ``valueOf`` of Java's classes does: whole numbers have no fractions."""
    if hive_type.name in INTEGER_BITS:
        if not _WHOLE.match(text):
            raise ValueError(f"{text[:80]!r} is not a whole number")
        # The pattern accepts the digits of any script, and int() converts them.
        text = str(int(text))
    return value_of(text, hive_type)

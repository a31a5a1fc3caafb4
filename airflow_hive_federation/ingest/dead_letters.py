"""Puts bad records aside, with the reason why each was refused."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from airflow_hive_federation.ingest.errors import DeadLetterLimitExceeded, SerializationError
from airflow_hive_federation.ingest.formats.columns import BadRecord
from airflow_hive_federation.storage import durable
from airflow_hive_federation.storage.filesystem import local_path, open_filesystem, storage_errors
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.publishing import PRIVATE_FILE, make_parents, write_atomically

_SHOWN_BYTES = 200
_HELD_BYTES = 8 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter:
    """A record that was not written.

    :param record_number: number of the record in its transaction, from 1.
    :param column: the column that could not be parsed; empty if the record as a whole is bad.
    :param reason: the reason why the record was refused.
    """

    record: bytes
    record_number: int
    column: str
    reason: str

    def to_json(self) -> str:
        """Return the dead letter as one line of JSON; a record that is not UTF-8 becomes Base64."""
        fields = {"record_number": self.record_number, "column": self.column, "reason": self.reason}
        try:
            return json.dumps({**fields, "record": self.record.decode()}, ensure_ascii=False)
        except UnicodeDecodeError:
            return json.dumps({**fields, "record_base64": base64.b64encode(self.record).decode()})


DeadLetterHandler = Callable[[DeadLetter], None]
"""Receives dead letters. The connection calls its ``flush``, if any, before each commit and at the end."""


class DeadLetterFile:
    """A file of dead letters, with one JSON object per line.

    On this machine's file systems only its owner may read the file, because it holds the records unchanged.

    :param uri: URI of the file. In a store that cannot append, each write replaces the file by one with
        all lines; so only one process may use it.
    :param storage_options: options of that store.
    """

    def __init__(self, uri: str, storage_options: StorageOptions | None = None) -> None:
        self._uri, self._options = uri, storage_options
        self._lines: list[bytes] = []
        self._size_bytes = 0

    def __call__(self, letter: DeadLetter) -> None:
        """Add a dead letter, and write the buffered ones first if there are many.

        :raises StorageError: the buffered dead letters cannot be written; this one is not among them.
        """
        line = letter.to_json().encode() + b"\n"
        if self._size_bytes + len(line) > _HELD_BYTES:
            self.flush()
        self._lines.append(line)
        self._size_bytes += len(line)

    def flush(self) -> None:
        """Write the buffered dead letters to the file.

        :raises StorageError: the file cannot be written.
        """
        if not self._lines:
            return
        local = local_path(self._uri)
        if local is None:
            write_atomically(self._uri, [*self._present(), *self._lines], self._options)
        else:
            with storage_errors(self._uri):
                make_parents(local, private=True)
                with open(local, "ab", opener=_open_privately) as file:
                    file.writelines(self._lines)
                    durable.sync_open_file(file)
                durable.sync_directory(local.rpartition("/")[0])
        self._lines, self._size_bytes = [], 0

    def _present(self) -> list[bytes]:
        filesystem, path = open_filesystem(self._uri, self._options)
        with storage_errors(self._uri):
            return [filesystem.cat_file(path)] if filesystem.exists(path) else []


class BadRecords:
    """The treatment of bad records: a connection puts them aside or raises an error.

    :param handler: receives the bad records; ``None`` raises an error instead.
    :param limit: the most bad records in the life of the connection; ``None`` sets no limit.
    """

    def __init__(self, handler: DeadLetterHandler | None, limit: int | None) -> None:
        self._handler, self._limit = handler, limit
        self._pending: list[DeadLetter] = []
        self.count = 0

    def flush(self) -> None:
        """Make the handler write the dead letters it has received.

        :raises StorageError: they cannot be written.
        """
        flush = getattr(self._handler, "flush", None)
        if flush is not None:
            flush()

    def deal_with(
        self, records: Sequence[bytes] | Mapping[int, bytes], bad: Sequence[BadRecord], before: int
    ) -> None:
        """Add bad records as :meth:`add` does, and :meth:`settle` them."""
        self.add(records, bad, before)
        self.settle()

    def add(
        self, records: Sequence[bytes] | Mapping[int, bytes], bad: Sequence[BadRecord], before: int
    ) -> None:
        """Keep bad records until :meth:`settle` has dealt with them.

        :param records: all parsed records, or the bad ones by their index.
        :param before: number of the transaction's records before these.
        """
        self._pending += [
            DeadLetter(
                record=bytes(records[bad_record.index]),
                record_number=before + bad_record.index + 1,
                column=bad_record.column,
                reason=bad_record.reason,
            )
            for bad_record in bad
        ]

    def settle(self) -> None:
        """Pass the kept bad records to the handler, or raise an error.

        A record that the handler does not take stays, and so do those behind it.

        :raises SerializationError: a record is bad and no handler is set; the error names the first one, and
            all are forgotten.
        :raises DeadLetterLimitExceeded: the bad records exceed the limit.
        :raises StorageError: the handler cannot write them.
        """
        if self._pending and self._handler is None:
            letters, self._pending = self._pending, []
            raise _refused(letters)
        done = 0
        try:
            for letter in self._pending:
                self._pass_on(letter)
                done += 1
        finally:
            del self._pending[:done]

    def forget(self) -> None:
        """Drop the kept bad records, because their transaction has ended."""
        self._pending = []

    def _pass_on(self, letter: DeadLetter) -> None:
        if self._limit is not None and self.count >= self._limit:
            raise DeadLetterLimitExceeded(
                f"More than {self._limit} bad records. {_described(letter)}",
                remedy="Abort the transaction, and look at the dead letters.",
                limit=self._limit,
                record_number=letter.record_number,
                column=letter.column,
            )
        if self._handler is not None:
            self._handler(letter)
        self.count += 1


def _open_privately(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE_FILE)


def _refused(letters: Sequence[DeadLetter]) -> SerializationError:
    first, more = letters[0], len(letters) - 1
    return SerializationError(
        _described(first) + (f" So are {more} more." if more else ""),
        remedy="Correct it, or have bad records put aside (with_dead_letters). All others are written.",
        record_number=first.record_number,
        column=first.column,
        bad_records=list(letters),
    )


def _described(letter: DeadLetter) -> str:
    shown = letter.record[:_SHOWN_BYTES].decode("utf-8", "replace")
    cut = "…" if len(letter.record) > _SHOWN_BYTES else ""
    column = f", column {letter.column}" if letter.column else ""
    label = f"Record {letter.record_number} of the transaction{column}"
    return f"{label}: {letter.reason}. It begins {shown!r}{cut}."

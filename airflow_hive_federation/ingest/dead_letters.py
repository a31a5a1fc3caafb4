"""Bad records, put aside with the reason."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_hive_federation.ingest.errors import DeadLetterLimitExceeded, SerializationError
from airflow_hive_federation.ingest.formats.columns import BadRecord
from airflow_hive_federation.storage import durable
from airflow_hive_federation.storage.filesystem import local_path, open_filesystem, storage_errors
from airflow_hive_federation.storage.publishing import PRIVATE_FILE, make_parents, write_atomically

_SHOWN_BYTES = 200
_HELD_BYTES = 8 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter:
    """A record that was not written.

    :param record: its bytes.
    :param record_number: its number in its transaction, from 1.
    :param column: the column it failed in; empty if it is about the record as a whole.
    """

    record: bytes
    record_number: int
    column: str
    reason: str

    def to_json(self) -> str:
        """Write it as a line of JSON; what is no UTF-8 as Base64."""
        fields = {"record_number": self.record_number, "column": self.column, "reason": self.reason}
        try:
            return json.dumps({**fields, "record": self.record.decode()}, ensure_ascii=False)
        except UnicodeDecodeError:
            return json.dumps({**fields, "record_base64": base64.b64encode(self.record).decode()})


DeadLetterHandler = Callable[[DeadLetter], None]
"""Takes dead letters. If it has a method ``flush``, that is called before each commit, and at the end."""


class DeadLetterFile:
    """Appends dead letters to a file, one JSON object a line.

    On this machine's file systems, only its owner may read the file: it holds records as they were.

    :param uri: where; in a store that cannot append, the file is written anew with what it has, so that only
        one process may use it.
    :param storage_options: options of that store.
    """

    def __init__(self, uri: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self._uri, self._options = uri, storage_options
        self._lines: list[bytes] = []
        self._size_bytes = 0

    def __call__(self, letter: DeadLetter) -> None:
        """Take one.

        :raises StorageError: those that were taken before cannot be written.
        """
        self._lines.append(letter.to_json().encode() + b"\n")
        self._size_bytes += len(self._lines[-1])
        if self._size_bytes > _HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was taken.

        :raises StorageError: it cannot be written.
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
    """What a connection does with bad records.

    :param handler: takes them; ``None`` raises instead.
    :param limit: how many it takes at most in the life of the connection; ``None`` is any number.
    """

    def __init__(self, handler: DeadLetterHandler | None, limit: int | None) -> None:
        self._handler, self._limit = handler, limit
        self.count = 0

    def flush(self) -> None:
        """Have what was handed over written.

        :raises StorageError: it cannot be.
        """
        flush = getattr(self._handler, "flush", None)
        if flush is not None:
            flush()

    def deal_with(
        self, records: Sequence[bytes] | Mapping[int, bytes], bad: Sequence[BadRecord], before: int
    ) -> None:
        """Hand bad records over, or raise.

        :param records: all that were parsed, or the bad ones by their index.
        :param before: how many records of the transaction came before these.
        :raises SerializationError: for the first of them, if nobody takes them.
        :raises DeadLetterLimitExceeded: more than the limit.
        """
        letters = [
            DeadLetter(
                record=bytes(records[one.index]),
                record_number=before + one.index + 1,
                column=one.column,
                reason=one.reason,
            )
            for one in bad
        ]
        if letters and self._handler is None:
            raise _refused(letters)
        for letter in letters:
            if self._limit is not None and self.count >= self._limit:
                raise DeadLetterLimitExceeded(
                    f"More than {self._limit} bad records. {_told(letter)}",
                    remedy="Abort the transaction, and look at the dead letters.",
                    limit=self._limit,
                    record_number=letter.record_number,
                    column=letter.column,
                )
            self.count += 1
            if self._handler is not None:
                self._handler(letter)


def _open_privately(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE_FILE)


def _refused(letters: Sequence[DeadLetter]) -> SerializationError:
    first, more = letters[0], len(letters) - 1
    return SerializationError(
        _told(first) + (f" So are {more} more." if more else ""),
        remedy="Correct it, or have bad records put aside (with_dead_letters). All others are written.",
        record_number=first.record_number,
        column=first.column,
        bad_records=list(letters),
    )


def _told(letter: DeadLetter) -> str:
    shown = letter.record[:_SHOWN_BYTES].decode("utf-8", "replace")
    cut = "…" if len(letter.record) > _SHOWN_BYTES else ""
    column = f", column {letter.column}" if letter.column else ""
    place = f"Record {letter.record_number} of the transaction{column}"
    return f"{place}: {letter.reason}. It begins {shown!r}{cut}."

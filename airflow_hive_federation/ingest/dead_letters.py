"""Bad records, put aside with the reason."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.ingest.columns import BadRecord
from airflow_hive_federation.ingest.errors import DeadLetterLimitExceeded, SerializationError
from airflow_hive_federation.storage.filesystem import local_path, storage_errors

_SHOWN_BYTES = 200


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


class DeadLetterFile:
    """Appends dead letters to a file of this machine, one JSON object a line.

    :raises ConfigurationError: it is not on this machine.
    """

    def __init__(self, uri: str) -> None:
        path = local_path(uri)
        if path is None:
            raise ConfigurationError(
                f"Dead letters cannot be appended to {uri}.", remedy="Name a file of this machine."
            )
        self._uri, self._path = uri, Path(path)

    def __call__(self, letter: DeadLetter) -> None:
        """Append one.

        :raises StorageError: it cannot be written.
        """
        with storage_errors(self._uri):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(letter.to_json() + "\n")


class BadRecords:
    """What a connection does with bad records.

    :param handler: takes them; ``None`` raises instead.
    :param limit: how many it takes at most in the life of the connection; ``None`` is any number.
    """

    def __init__(self, handler: DeadLetterHandler | None, limit: int | None) -> None:
        self._handler, self._limit = handler, limit
        self.count = 0

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

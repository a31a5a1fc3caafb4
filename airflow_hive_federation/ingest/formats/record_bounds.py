"""Refuses records that are too long, and parses the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from airflow_hive_federation.ingest.errors import SerializationError
from airflow_hive_federation.ingest.formats.columns import BadRecord
from airflow_hive_federation.ingest.formats.writers import AbstractRecordWriter, Parsed


def parse_bounded(writer: AbstractRecordWriter, records: Sequence[bytes]) -> Parsed:
    """Parse the records that are within the writer's length limit; longer records become bad records."""
    longest = writer.max_record_bytes
    long = [index for index, record in enumerate(records) if len(record) > longest]
    if not long:
        return writer.parse(records)
    kept = [index for index, record in enumerate(records) if len(record) <= longest]
    parsed = writer.parse([records[index] for index in kept])
    bad = [replace(bad_record, index=kept[bad_record.index]) for bad_record in parsed.bad]
    bad += [BadRecord(index=index, column="", reason=_too_long(longest)) for index in long]
    return replace(parsed, bad=sorted(bad, key=lambda bad_record: bad_record.index))


def check_open_record(pieces: Iterable[bytes], longest: int, place: str) -> None:
    """Check the length of a record whose end was not read yet.

    :param longest: bytes that a record may have.
    :param place: beginning of the record, for the message.
    :raises SerializationError: the record is longer than that.
    """
    if sum(map(len, pieces)) > longest:
        raise SerializationError(
            f"{place}: {_too_long(longest)}",
            remedy="Check the line delimiter; set max_record_bytes if records are as long as that.",
            column="",
        )


def _too_long(longest: int) -> str:
    return f"it has more than {longest} bytes"

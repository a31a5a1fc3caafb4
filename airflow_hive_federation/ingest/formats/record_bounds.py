"""Bounds of one record: bytes, values, and how it is parsed beside records that keep to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from airflow_hive_federation.ingest.errors import SerializationError
from airflow_hive_federation.ingest.formats.columns import BadRecord
from airflow_hive_federation.ingest.formats.writers import AbstractRecordWriter, Parsed


def parse_bounded(writer: AbstractRecordWriter, records: Sequence[bytes]) -> Parsed:
    """Have a writer parse the records that are not too long; those that are come out as bad ones."""
    longest = writer.max_record_bytes
    long = [index for index, record in enumerate(records) if len(record) > longest]
    if not long:
        return writer.parse(records)
    kept = [index for index, record in enumerate(records) if len(record) <= longest]
    parsed = writer.parse([records[index] for index in kept])
    bad = [replace(one, index=kept[one.index]) for one in parsed.bad]
    bad += [BadRecord(index=index, column="", reason=_too_long(longest)) for index in long]
    return replace(parsed, bad=sorted(bad, key=lambda one: one.index))


def check_open_record(pieces: Iterable[bytes], longest: int, place: str) -> None:
    """Make sure that a record whose end has not come yet is not too long to be held.

    :param longest: bytes that a record may have.
    :param place: where it begins, for the message.
    :raises SerializationError: it is.
    """
    if sum(map(len, pieces)) > longest:
        raise SerializationError(
            f"{place}: {_too_long(longest)}",
            remedy="Check the line delimiter; set max_record_bytes if records are as long as that.",
            column="",
        )


def _too_long(longest: int) -> str:
    return f"it has more than {longest} bytes"

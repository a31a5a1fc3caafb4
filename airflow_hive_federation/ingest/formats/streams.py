"""Splits streams into records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_hive_federation.ingest.formats.record_bounds import check_open_record
from airflow_hive_federation.ingest.formats.writers import MAX_RECORD_BYTES

_READ_BYTES = 4 << 20


def records_of(
    stream: Any, delimiter: bytes | None, longest: int = MAX_RECORD_BYTES
) -> Iterator[list[bytes]]:
    """Split a stream into records, many at a time; the last record needs no delimiter.

    :param stream: an object with ``read(size)``, which returns bytes or text.
    :param delimiter: bytes that end a record; ``None`` is a line feed, and drops a carriage return before it.
    :param longest: bytes that a record may have.
    :raises SerializationError: a record is longer than that.
    """
    end = delimiter or b"\n"
    pieces: list[bytes] = []
    edge = b""
    while chunk := stream.read(_READ_BYTES):
        data = chunk.encode() if isinstance(chunk, str) else bytes(chunk)
        pieces.append(data)
        # A delimiter may lie across two chunks, so the last bytes are searched again.
        seen = edge + data
        if end in seen:
            *records, rest = b"".join(pieces).split(end)
            yield _stripped(records, delimiter)
            pieces, seen = [rest], rest
        check_open_record(pieces, longest, "A record of the stream")
        edge = seen[-(len(end) - 1) :] if len(end) > 1 else b""
    rest = b"".join(pieces)
    if rest:
        yield _stripped([rest], delimiter)


def _stripped(records: list[bytes], delimiter: bytes | None) -> list[bytes]:
    if delimiter is not None:
        return records
    return [record[:-1] if record.endswith(b"\r") else record for record in records]

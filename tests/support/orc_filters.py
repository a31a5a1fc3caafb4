"""Reads the codec and the Bloom filters of an ORC file."""

from __future__ import annotations

import io
from pathlib import Path

from airflow_hive_federation.model.protobuf import all_of, fields_of, number_of
from airflow_hive_federation.orc.chunks import inflated
from airflow_hive_federation.orc.streams import BLOOM_FILTER, Streams
from airflow_hive_federation.orc.tail import locate_footer, read_tail


def codec_and_filters(file: Path) -> tuple[str, list[int]]:
    """A file's codec, and the columns that have Bloom filters in its only stripe."""
    with file.open("rb") as content:
        tail = read_tail(content, str(file))
    _, _, footer = locate_footer(io.BytesIO(file.read_bytes()), str(file))
    (stripe,) = all_of(footer, 3)
    offset, *lengths = (number_of(fields_of(stripe), field) for field in range(1, 5))
    body = memoryview(file.read_bytes())[offset : offset + sum(lengths)]
    streams = Streams.of(
        body, (lengths[0], lengths[1], lengths[2]), lambda chunk: inflated(chunk, tail.compression)
    )
    return tail.compression, [stream.column for stream in streams.streams if stream.kind == BLOOM_FILTER]

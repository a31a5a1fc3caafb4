"""Bloom filters of ORC files, by which readers leave out row groups that lack a value.

pyarrow's ORC writer computes them, with the hash functions of the ORC specification ("Bloom Filter Index").
It writes the columns concerned once more, into a small file of which nothing but the filters is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyarrow import orc

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.orc.arrow_columns import orc_width
from airflow_hive_federation.orc.properties import BloomFilters
from airflow_hive_federation.orc.protobuf import VARINT, all_of, fields_of, message_of, number_of
from airflow_hive_federation.orc.streams import BLOOM_FILTER, ROW_INDEX, Stream, Streams
from airflow_hive_federation.orc.tail import locate_footer

_ACID_COLUMNS = ["operation", "originalTransaction", "bucket", "rowId", "currentTransaction", "row"]
# ColumnEncoding: how the filters are made (``BloomFilterIO.Encoding``, UTF8_UTC).
_BLOOM_ENCODING, _UTF8_UTC = 3, 1
# So that what is written together stays one stripe.
_STRIPE_BYTES = 1 << 40


def filtered_columns(filters: BloomFilters, rows: pa.Table) -> Mapping[int, pa.ChunkedArray]:
    """Columns that get filters, by the number that each has in an ORC file.

    :param rows: the user's columns, or the six of ACID files; delete events have no filters.
    """
    if not filters.columns or not len(rows):
        return {}
    names, columns, number = rows.column_names, rows.columns, 1
    if names == _ACID_COLUMNS:
        row = columns[-1]
        if row.null_count == len(row):
            return {}
        number += len(columns)
        names, columns = row.type.names, row.flatten()
    found = {}
    for name, column in zip(names, columns, strict=True):
        if name.lower() in filters.columns:
            found[number] = column
        number += orc_width(column.type)
    return found


def with_filters(
    streams: Streams, columns: Mapping[int, pa.ChunkedArray], start: int, end: int, *, fpp: float, stride: int
) -> Streams:
    """Add the filters of some rows to their stripe.

    :param columns: see :func:`filtered_columns`.
    :param start: the stripe's first row.
    :param end: the row after its last.
    :param fpp: see :class:`.properties.BloomFilters`.
    :param stride: rows of a row group.
    """
    if not columns:
        return streams
    some = [column.slice(start, end - start) for column in columns.values()]
    made = dict(zip(columns, _made(some, fpp, stride), strict=True))
    found: list[Stream] = []
    for one in streams.streams:
        found.append(one)
        if one.kind == ROW_INDEX and one.column in made:
            found.append(Stream(BLOOM_FILTER, one.column, made[one.column]))
    encoding = message_of([(_BLOOM_ENCODING, VARINT, _UTF8_UTC)])
    encodings = [one + encoding if number in made else one for number, one in enumerate(streams.encodings)]
    return Streams(found, encodings, streams.others)


def _made(columns: Sequence[pa.ChunkedArray], fpp: float, stride: int) -> list[bytes]:
    """A stream of each column: a filter for each row group."""
    sink = pa.BufferOutputStream()
    with orc.ORCWriter(
        sink,
        file_version="0.12",
        compression="uncompressed",
        stripe_size=_STRIPE_BYTES,
        row_index_stride=stride,
        bloom_filter_columns=list(range(1, len(columns) + 1)),
        bloom_filter_fpp=fpp,
    ) as writer:
        writer.write(pa.table(list(columns), names=[f"c{index}" for index in range(len(columns))]))
    content = memoryview(sink.getvalue())
    found = [b""] * len(columns)
    _, _, footer = locate_footer(pa.BufferReader(content), "filters")
    for stripe in all_of(footer, 3):
        offset, *lengths = (number_of(fields_of(stripe), field) for field in range(1, 5))
        body = content[offset : offset + sum(lengths)]
        for one in Streams.of(body, (lengths[0], lengths[1], lengths[2])).streams:
            if one.kind == BLOOM_FILTER:
                found[one.column - 1] += bytes(one.content)
    groups = -(-len(columns[0]) // stride)
    if any(len(all_of(fields_of(one), 1)) != groups for one in found):
        raise AcidFormatError(
            "pyarrow made other Bloom filters than one for each row group.",
            remedy="Use a version of pyarrow that this package is tested with.",
        )
    return found

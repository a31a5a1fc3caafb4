"""Adds Bloom filters to ORC stripes, by which readers leave out row groups that lack a value.

pyarrow's ORC writer computes the filters, with the hash functions of the ORC specification ("Bloom Filter
Index"). It writes the filtered columns once more, into a small file from which only the filters are taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyarrow import orc

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.protobuf import VARINT, all_of, fields_of, message_of, number_of
from airflow_hive_federation.orc.arrow_columns import orc_width
from airflow_hive_federation.orc.properties import BloomFilters
from airflow_hive_federation.orc.streams import BLOOM_FILTER, ROW_INDEX, Stream, Streams
from airflow_hive_federation.orc.tail import locate_footer

_ACID_COLUMNS = ["operation", "originalTransaction", "bucket", "rowId", "currentTransaction", "row"]
# The field of ColumnEncoding with the form of the filters (``BloomFilterIO.Encoding``), and UTF8_UTC.
_BLOOM_ENCODING, _UTF8_UTC = 3, 1
# Large enough to keep rows that are written together in one stripe.
_STRIPE_BYTES = 1 << 40


def filtered_columns(filters: BloomFilters, rows: pa.Table) -> Mapping[int, pa.ChunkedArray]:
    """Return the columns that get filters, by their numbers in the ORC file.

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
    filtered = {}
    for name, column in zip(names, columns, strict=True):
        if name.lower() in filters.columns:
            filtered[number] = column
        number += orc_width(column.type)
    return filtered


def with_filters(
    streams: Streams, columns: Mapping[int, pa.ChunkedArray], start: int, end: int, *, fpp: float, stride: int
) -> Streams:
    """Add Bloom filters to a stripe.

    :param columns: result of :func:`filtered_columns`.
    :param start: the stripe's first row.
    :param end: the row after its last row.
    :param fpp: false positive share, see :class:`.properties.BloomFilters`.
    :param stride: number of rows of a row group.
    """
    if not columns:
        return streams
    slices = [column.slice(start, end - start) for column in columns.values()]
    made = dict(zip(columns, _made(slices, fpp, stride), strict=True))
    with_blooms: list[Stream] = []
    for stream in streams.streams:
        with_blooms.append(stream)
        if stream.kind == ROW_INDEX and stream.column in made:
            with_blooms.append(Stream(BLOOM_FILTER, stream.column, made[stream.column]))
    encoding = message_of([(_BLOOM_ENCODING, VARINT, _UTF8_UTC)])
    encodings = [own + encoding if number in made else own for number, own in enumerate(streams.encodings)]
    return Streams(with_blooms, encodings, streams.others)


def _made(columns: Sequence[pa.ChunkedArray], fpp: float, stride: int) -> list[bytes]:
    """Return one stream per column, with one filter per row group."""
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
    blooms = [b""] * len(columns)
    _, _, footer = locate_footer(pa.BufferReader(content), "filters")
    for stripe in all_of(footer, 3):
        offset, *lengths = (number_of(fields_of(stripe), field) for field in range(1, 5))
        body = content[offset : offset + sum(lengths)]
        for stream in Streams.of(body, (lengths[0], lengths[1], lengths[2])).streams:
            if stream.kind == BLOOM_FILTER:
                blooms[stream.column - 1] += bytes(stream.content)
    groups = -(-len(columns[0]) // stride)
    if any(len(all_of(fields_of(bloom), 1)) != groups for bloom in blooms):
        raise AcidFormatError(
            "pyarrow did not make exactly one Bloom filter for each row group.",
            remedy="Use a version of pyarrow that this package is tested with.",
        )
    return blooms

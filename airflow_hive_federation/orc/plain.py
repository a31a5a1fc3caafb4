"""Encodes ORC stripes fast: without indexes, dictionaries and compression, as Hive's streaming does.

``hive.exec.orc.delta.streaming.optimizations.enabled`` leaves all that to the next compaction. Whole numbers,
dates and texts, the most frequent types of a stream, are then little more than copied: numpy makes their
streams several times faster than an encoder that searches for the smallest form. Columns of other types, and
columns of long texts, are encoded in the same way as in stripes with indexes, and their streams are copied.

Streams, encodings and statistics follow the ORC specification, version 1; :mod:`.integers` describes the form
of whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa

from airflow_hive_federation.model.protobuf import BYTES, VARINT, message_of
from airflow_hive_federation.orc.arrow_columns import orc_width
from airflow_hive_federation.orc.assembly import Stripe, encode
from airflow_hive_federation.orc.integers import integer_statistics, steps
from airflow_hive_federation.orc.streams import DATA, ROW_INDEX, Content, Stream, Streams
from airflow_hive_federation.orc.texts import Texts
from airflow_hive_federation.orc.whole_numbers import WholeNumbers

_Stream = tuple[int, Content]
# Kinds of encodings.
_DIRECT, _DIRECT_V2 = b"\x08\x00", b"\x08\x02"
# Fields of ColumnStatistics.
_COUNT, _INTEGERS, _DATES, _HAS_NULL = 1, 2, 7, 10


@dataclass(frozen=True)
class EncodedColumn:
    """An encoded column of a stripe.

    :param streams: kind and content of each stream.
    :param encoding: serialized ``ColumnEncoding``.
    :param statistics: serialized ``ColumnStatistics``.
    """

    streams: tuple[_Stream, ...]
    encoding: bytes
    statistics: bytes


def constant(value: int, count: int) -> EncodedColumn:
    """Encode a column that repeats one whole number ``count`` times."""
    return _numbers(steps(value, 0, count), value, value, value * count, count)


def counting(first: int, count: int) -> EncodedColumn:
    """Encode a column of ``count`` consecutive whole numbers from ``first`` on."""
    last = first + count - 1
    return _numbers(steps(first, 1, count), first, last, (first + last) * count // 2, count)


def structs(count: int) -> EncodedColumn:
    """Encode a column of structs without nulls, whose fields are the columns that follow."""
    return EncodedColumn((), _DIRECT, message_of([(_COUNT, VARINT, count), (_HAS_NULL, VARINT, 0)]))


def columns_of(rows: pa.RecordBatch) -> list[EncodedColumn]:
    """Encode the columns of rows, each followed by the columns below it.

    :raises AcidFormatError: if a timestamp cannot be stored; see :mod:`.early_timestamps`.
    """
    made = [_plain(array) for array in rows.columns]
    others = [place for place, encoded in enumerate(made) if encoded is None]
    taken = iter(_by_arrow([rows.column(place) for place in others]) if others else ())
    return [column for encoded in made for column in ([encoded] if encoded is not None else next(taken))]


def plain_stripe(columns: Sequence[EncodedColumn], count: int) -> Stripe:
    """Assemble a stripe from its columns.

    :param columns: all columns of the file, the root included.
    :param count: number of rows.
    """
    model = _model()
    body, lengths = Streams(
        [
            Stream(kind, number, content)
            for number, column in enumerate(columns)
            for kind, content in column.streams
        ],
        [column.encoding for column in columns],
        Streams.of(model.body, model.lengths).others,
    ).joined()
    statistics = tuple(column.statistics for column in columns)
    return replace(
        model,
        body=body,
        lengths=lengths,
        rows=count,
        statistics=(message_of([(1, BYTES, column_statistics) for column_statistics in statistics]),),
        columns=statistics,
    )


@cache
def _model() -> Stripe:
    """Return a stripe of pyarrow's, as the source of the fields for the software and the time zone."""
    (model,) = encode(pa.table({"model": pa.array([0], pa.int32())}), "uncompressed")
    return model


def _by_arrow(arrays: Sequence[pa.Array]) -> list[list[EncodedColumn]]:
    table = pa.Table.from_arrays(list(arrays), names=[str(place) for place in range(len(arrays))])
    (made,) = encode(table, "uncompressed", dictionaries=False)
    taken = Streams.of(made.body, made.lengths)
    streams: list[list[_Stream]] = [[] for _ in made.columns]
    for stream in taken.streams:
        if stream.kind != ROW_INDEX:
            streams[stream.column].append((stream.kind, stream.content))
    # The first column is the root.
    columns = iter(list(map(EncodedColumn, map(tuple, streams), taken.encodings, made.columns))[1:])
    return [[next(columns) for _ in range(orc_width(array.type))] for array in arrays]


def _plain(array: pa.Array) -> EncodedColumn | None:
    """Encode a column of whole numbers, dates or short texts; return ``None`` for other columns."""
    column = pa.chunked_array([array])
    plain_column = WholeNumbers.of_any(column) or Texts.of(column)
    if plain_column is None:
        return None
    made = plain_column.plain()
    return EncodedColumn(
        tuple((stream.kind, stream.content) for stream in made.streams), made.encoding, made.statistics
    )


def _numbers(runs: bytes, low: int, high: int, total: int, count: int) -> EncodedColumn:
    return EncodedColumn(((DATA, runs),), _DIRECT_V2, integer_statistics(low, high, total, count))

"""Encodes timestamps that pyarrow's ORC writer stores wrongly or does not know.

pyarrow's writer stores negative nanoseconds for an instant before 1970 with a fraction of a second, and takes
the values of :mod:`.nanosecond_times` for bytes. It therefore receives whole seconds instead, rounded as in
ORC. This module encodes the streams of nanoseconds, and replaces them in the encoded stripe. The bounds of
these columns are removed from the stripe's statistics.

The last second before 1970 cannot be stored: the sign of its seconds is lost (``TimestampTreeReader``
recognizes an early instant by negative seconds).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.protobuf import (
    BYTES,
    all_of,
    fields_of,
    message_of,
    number_of,
    read_varints,
    varint,
)
from airflow_hive_federation.orc.arrow_columns import in_one_piece, orc_width
from airflow_hive_federation.orc.instants import shortened
from airflow_hive_federation.orc.integers import Runs, runs_of
from airflow_hive_federation.orc.nanosecond_times import NANOSECOND_TIME, of_timestamps, parts
from airflow_hive_federation.orc.nested import with_leaves
from airflow_hive_federation.orc.streams import ROW_INDEX, SECONDARY, Stream, Streams
from airflow_hive_federation.orc.timestamps import has_unstorable_timestamp

Nanoseconds = npt.NDArray[np.int64]
# Up to this many nanoseconds, seconds are rounded down instead of towards zero (TimestampTreeReader,
# TimestampColumnWriter).
_ROUNDED_NANOSECONDS = 999_999
_TIMESTAMP_STATISTICS = 9


def storable(rows: pa.Table) -> tuple[pa.Table, Mapping[int, Nanoseconds]]:
    """Convert rows to a form that pyarrow stores correctly.

    :return: the rows, and the stored nanoseconds by the columns' numbers in an ORC file.
    :raises AcidFormatError: if an instant lies in the last second before 1970.
    """
    nanoseconds: dict[int, Nanoseconds] = {}

    def whole_seconds(array: pa.Array, number: int) -> pa.Array:
        if not has_unstorable_timestamp(array):
            return array
        made, nanoseconds[number] = _whole_seconds(array)
        return made

    columns, number = [], 1
    for column in rows.columns:
        is_changed = any(has_unstorable_timestamp(chunk) for chunk in column.chunks)
        if is_changed:
            columns.append(with_leaves(in_one_piece(column), whole_seconds, number))
        else:
            columns.append(column)
        number += orc_width(column.type)
    return (pa.table(columns, names=rows.column_names) if nanoseconds else rows), nanoseconds


def _whole_seconds(array: pa.Array) -> tuple[pa.Array, Nanoseconds]:
    times = array if array.type == NANOSECOND_TIME else of_timestamps(array)
    seconds, nanoseconds = parts(times)
    nulls = times.is_null().to_numpy(zero_copy_only=False)
    seconds, nanoseconds = np.where(nulls, 0, seconds), np.where(nulls, 0, nanoseconds)
    is_rounded = (seconds < 0) & (nanoseconds > _ROUNDED_NANOSECONDS)
    if (is_rounded & (seconds == -1)).any():
        raise AcidFormatError(
            "A timestamp lies in the last second before 1970, whose fractions ORC cannot store.",
            remedy="Write whole seconds.",
        )
    in_seconds = pa.array(seconds + is_rounded, pa.int64(), mask=nulls).cast(pa.timestamp("s"))
    return in_seconds, shortened(nanoseconds[~nulls], 10**9)


def with_nanoseconds(streams: Streams, nanoseconds: Mapping[int, Nanoseconds]) -> Streams:
    """Replace the streams of nanoseconds in a stripe.

    :param nanoseconds: stored nanoseconds by column number, one per value that is not null.
    """
    made = {column: runs_of(values, signed=False) for column, values in nanoseconds.items()}

    def changed(stream: Stream) -> Stream:
        if stream.column in made and stream.kind == SECONDARY:
            return stream._replace(content=made[stream.column].content)
        if stream.column in made and stream.kind == ROW_INDEX:
            return stream._replace(content=_index(bytes(stream.content), made[stream.column]))
        return stream

    return replace(streams, streams=[changed(stream_to_change) for stream_to_change in streams.streams])


def without_bounds(statistics: bytes) -> bytes:
    """Remove the bounds of timestamps from a ``ColumnStatistics``."""
    return message_of([field for field in fields_of(statistics) if field[0] != _TIMESTAMP_STATISTICS])


def value_counts(stripe_statistics: bytes) -> list[int]:
    """Return the number of values of each column that are not null, from a ``StripeStatistics``."""
    return [number_of(fields_of(message), 1) for message in all_of(fields_of(stripe_statistics), 1)]


def _index(message: bytes, runs: Runs) -> bytes:
    """Replace the positions of the column's last stream in a ``RowIndex``.

    :param runs: content of the stream.
    """
    entries: list[tuple[int, int, int | bytes]] = []
    values = 0
    for entry in all_of(fields_of(message), 1):
        fields = fields_of(entry)
        (statistics,) = all_of(fields, 2)
        positions = list(read_varints(b"".join(all_of(fields, 1))))
        positions[-2:] = runs.place(values)
        packed = b"".join(map(varint, positions))
        entries.append((1, BYTES, message_of([(1, BYTES, packed), (2, BYTES, without_bounds(statistics))])))
        values += number_of(fields_of(statistics), 1)
    return message_of(entries)


def split(
    nanoseconds: Mapping[int, Nanoseconds], counts: Sequence[Sequence[int]]
) -> list[dict[int, Nanoseconds]]:
    """Divide values among the stripes that hold them.

    :param counts: number of values of each column, stripe by stripe.
    """
    ends = {column: np.cumsum([in_stripe[column] for in_stripe in counts])[:-1] for column in nanoseconds}
    parts = {column: np.split(values, ends[column]) for column, values in nanoseconds.items()}
    return [
        {column: stripe_values[index] for column, stripe_values in parts.items()}
        for index in range(len(counts))
    ]

"""Writes the row ids of a stripe after its encoding, when the number of earlier rows is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from airflow_hive_federation.model.protobuf import BYTES, all_of, fields_of, message_of
from airflow_hive_federation.orc.assembly import ROW_INDEX_STRIDE, Stripe
from airflow_hive_federation.orc.chunks import decompressed
from airflow_hive_federation.orc.compression import COMPRESSIONS, compressed, framed
from airflow_hive_federation.orc.progressions import ArithmeticProgression
from airflow_hive_federation.orc.streams import DATA, ROW_INDEX, Streams


def renumbered(stripe: Stripe, column: int, first: int, compression: str) -> Stripe:
    """Number the rows of an encoded stripe anew, and leave the rest of the stripe unchanged.

    :param column: number of the column with the row ids, which are whole numbers without nulls.
    :param first: row id of the first row.
    :param compression: the stripe's compression, a name of :data:`.compression.COMPRESSIONS`.
    """
    made = ArithmeticProgression(first, 1, stripe.rows).encoded(0, ROW_INDEX_STRIDE)
    alone = Streams(made.streams, [made.encoding], [])
    body, (index, data, _) = compressed(alone, [ArithmeticProgression.kind], compression)
    content = {ROW_INDEX: body[:index], DATA: body[index : index + data]}
    streams = Streams.of(stripe.body, stripe.lengths, partial(decompressed, codec=COMPRESSIONS[compression]))
    changed = [
        stream._replace(content=content[stream.kind]) if stream.column == column else stream
        for stream in streams.streams
    ]
    body, lengths = framed(replace(streams, streams=changed), compression)
    (stored,) = stripe.statistics
    statistics = [(1, BYTES, part) for part in _put(all_of(fields_of(stored), 1), column, made.statistics)]
    columns = tuple(_put(stripe.columns, column, made.statistics))
    return replace(stripe, body=body, lengths=lengths, statistics=(message_of(statistics),), columns=columns)


def _put(columns: Sequence[bytes], number: int, statistics: bytes) -> list[bytes]:
    return [*columns[:number], statistics, *columns[number + 1 :]]

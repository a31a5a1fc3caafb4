"""Row ids put into stripes when it is known which rows come before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from airflow_hive_federation.orc.assembly import ROW_INDEX_STRIDE, Stripe
from airflow_hive_federation.orc.chunks import decompressed
from airflow_hive_federation.orc.compression import COMPRESSIONS, compressed, framed
from airflow_hive_federation.orc.counted import CountedNumbers
from airflow_hive_federation.orc.protobuf import BYTES, all_of, fields_of, message_of
from airflow_hive_federation.orc.streams import DATA, ROW_INDEX, Streams


def counted_on(stripe: Stripe, column: int, first: int, compression: str) -> Stripe:
    """Number the rows of an encoded stripe anew; nothing else of it is encoded again.

    :param column: number of the column, of whole numbers without nulls, that counts the rows.
    :param first: number of the first row.
    :param compression: the stripe's, of :data:`.compression.COMPRESSIONS`.
    """
    made = CountedNumbers(first, 1, stripe.rows).encoded(0, ROW_INDEX_STRIDE)
    alone = Streams(made.streams, [made.encoding], [])
    body, (index, data, _) = compressed(alone, [CountedNumbers.kind], compression)
    content = {ROW_INDEX: body[:index], DATA: body[index : index + data]}
    streams = Streams.of(stripe.body, stripe.lengths, partial(decompressed, codec=COMPRESSIONS[compression]))
    changed = [
        one._replace(content=content[one.kind]) if one.column == column else one for one in streams.streams
    ]
    body, lengths = framed(replace(streams, streams=changed), compression)
    (told,) = stripe.statistics
    statistics = [(1, BYTES, one) for one in _put(all_of(fields_of(told), 1), column, made.statistics)]
    columns = tuple(_put(stripe.columns, column, made.statistics))
    return replace(stripe, body=body, lengths=lengths, statistics=(message_of(statistics),), columns=columns)


def _put(columns: Sequence[bytes], number: int, told: bytes) -> list[bytes]:
    return [*columns[:number], told, *columns[number + 1 :]]

"""Numbers of rows in stripes: put in when it is known which rows come before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

from airflow_hive_federation.acid.orc.assembly import ROW_INDEX_STRIDE, Stripe
from airflow_hive_federation.acid.orc.compression import COMPRESSIONS, compressed, framed
from airflow_hive_federation.acid.orc.integers import RUN, integer_statistics, steps
from airflow_hive_federation.acid.orc.streams import DATA, ROW_INDEX, Content, Stream, Streams
from airflow_hive_federation.acid.orc.tail import _all, _fields, _message, _varint_bytes, decompressed

_BYTES = 2
_DIRECT_V2 = b"\x08\x02"
# Its ``Type.Kind``, bigint.
_KIND = 4


def counted_on(stripe: Stripe, column: int, first: int, compression: str) -> Stripe:
    """Number the rows of an encoded stripe anew; nothing else of it is encoded again.

    :param column: number of the column, of whole numbers without nulls, that counts the rows.
    :param first: number of the first row.
    :param compression: the stripe's, of :data:`.compression.COMPRESSIONS`.
    """
    streams = Streams.of(stripe.body, stripe.lengths, partial(decompressed, codec=COMPRESSIONS[compression]))
    made = _streams(first, stripe.rows, compression)
    changed = [
        one._replace(content=made[one.kind]) if one.column == column else one for one in streams.streams
    ]
    body, lengths = framed(replace(streams, streams=changed), compression)
    told = _statistics(first, stripe.rows)
    (statistics,) = stripe.statistics
    changed_statistics = _put(_all(_fields(statistics), 1), column, told)
    return replace(
        stripe,
        body=body,
        lengths=lengths,
        statistics=(_message([(1, _BYTES, one) for one in changed_statistics]),),
        columns=tuple(_put(stripe.columns, column, told)),
    )


def _put(columns: Sequence[bytes], column: int, told: bytes) -> list[bytes]:
    return [told if number == column else one for number, one in enumerate(columns)]


def _streams(first: int, count: int, compression: str) -> dict[int, Content]:
    """Make the column's streams, compressed."""
    starts = range(first, first + count, RUN)
    runs = [steps(start, 1, min(RUN, first + count - start)) for start in starts]
    offsets = [0, *accumulate(map(len, runs))]
    entries = []
    for start in range(0, count, ROW_INDEX_STRIDE):
        places = _varint_bytes(offsets[start // RUN]) + _varint_bytes(start % RUN)
        told = _statistics(first + start, min(ROW_INDEX_STRIDE, count - start))
        entries.append((1, _BYTES, _message([(1, _BYTES, places), (2, _BYTES, told)])))
    streams = [Stream(ROW_INDEX, 0, _message(entries)), Stream(DATA, 0, b"".join(runs))]
    alone = Streams(streams, [_DIRECT_V2], [])
    is_plain = compression == "uncompressed"
    body, (index, data, _) = alone.joined() if is_plain else compressed(alone, [_KIND], compression)
    return {ROW_INDEX: body[:index], DATA: body[index : index + data]}


def _statistics(first: int, count: int) -> bytes:
    last = first + count - 1
    return integer_statistics(first, last, (first + last) * count // 2, count)

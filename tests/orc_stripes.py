"""ORC files of single stripes, for tests."""

from __future__ import annotations

import io

import pyarrow as pa
from pyarrow import orc

from airflow_hive_federation.acid.orc.assembly import AssembledFile, Stripe
from airflow_hive_federation.acid.orc.streams import ROW_INDEX, Streams
from airflow_hive_federation.acid.orc.tail import _all, _fields, _locate, _number, _varints


def read_stripe(stripe: Stripe, rows: pa.Table, codec: str) -> pa.Table:
    """Read the file of one stripe by pyarrow.

    :param rows: a table of its columns.
    """
    types = pa.BufferOutputStream()
    orc.write_table(rows.slice(0, 0), types)
    _, _, footer = _locate(pa.BufferReader(types.getvalue()), "types")
    made = io.BytesIO()
    file = AssembledFile(made, _all(footer, 4), compression=codec, calendar=None)
    file.add(stripe)
    file.finish({})
    return orc.ORCFile(made).read()


def by_pyarrow(rows: pa.Table) -> tuple[list[bytes], Streams]:
    """What pyarrow's own writer makes of rows: statistics of the columns, and the streams of the stripe."""
    sink = pa.BufferOutputStream()
    orc.write_table(
        rows,
        sink,
        compression="uncompressed",
        row_index_stride=10_000,
        stripe_size=1 << 40,
        dictionary_key_size_threshold=0.0,
    )
    content = sink.getvalue()
    _, _, footer = _locate(pa.BufferReader(content), "pyarrow's")
    information = _fields(_all(footer, 3)[0])
    start, *lengths = (_number(information, number) for number in range(1, 5))
    body = memoryview(content)[start : start + sum(lengths)]
    return _all(footer, 7), Streams.of(body, (lengths[0], lengths[1], lengths[2]))


def told(statistics: bytes) -> list[object]:
    """What statistics say, but for how many bytes a column takes."""
    return sorted(
        (field[0], sorted(_fields(field[2]))) if isinstance(field[2], bytes) else (field[0], field[2])
        for field in _fields(statistics)
        if field[0] != 11
    )


def row_groups(streams: Streams, column: int) -> list[tuple[list[int], list[object]]]:
    """The entries of a column's index: places, and what statistics say."""
    (index,) = (one.content for one in streams.streams if (one.kind, one.column) == (ROW_INDEX, column))
    entries = [_fields(entry) for entry in _all(_fields(bytes(index)), 1)]
    return [(list(_varints(b"".join(_all(entry, 1)))), told(_all(entry, 2)[0])) for entry in entries]

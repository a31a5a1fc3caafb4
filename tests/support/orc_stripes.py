"""ORC files of single stripes, for tests."""

from __future__ import annotations

import io

import pyarrow as pa
from pyarrow import orc

from airflow_hive_federation.model.protobuf import all_of, fields_of, number_of, read_varints
from airflow_hive_federation.orc.assembly import AssembledFile, Stripe, encode
from airflow_hive_federation.orc.encodable_columns import EncodableColumn, insert_columns
from airflow_hive_federation.orc.streams import DATA, PRESENT, ROW_INDEX, Streams
from airflow_hive_federation.orc.tail import locate_footer


def read_stripe(stripe: Stripe, rows: pa.Table, codec: str) -> pa.Table:
    """Read the file of one stripe by pyarrow.

    :param rows: a table of its columns.
    """
    types = pa.BufferOutputStream()
    orc.write_table(rows.slice(0, 0), types)
    _, _, footer = locate_footer(pa.BufferReader(types.getvalue()), "types")
    made = io.BytesIO()
    file = AssembledFile(made, all_of(footer, 4), compression=codec, calendar=None)
    file.add(stripe)
    file.finish({})
    return orc.ORCFile(made).read()


def by_pyarrow(rows: pa.Table) -> tuple[list[bytes], Streams]:
    """Write rows by pyarrow; return the statistics of the columns, and the streams of the stripe."""
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
    _, _, footer = locate_footer(pa.BufferReader(content), "pyarrow's")
    information = fields_of(all_of(footer, 3)[0])
    start, *lengths = (number_of(information, number) for number in range(1, 5))
    body = memoryview(content)[start : start + sum(lengths)]
    return all_of(footer, 7), Streams.of(body, (lengths[0], lengths[1], lengths[2]))


def bare_statistics(statistics: bytes) -> list[object]:
    """Return the fields of statistics without the number of bytes of the column."""
    return sorted(
        (field[0], sorted(fields_of(field[2]))) if isinstance(field[2], bytes) else (field[0], field[2])
        for field in fields_of(statistics)
        if field[0] != 11
    )


def row_groups(streams: Streams, column: int) -> list[tuple[list[int], list[object]]]:
    """Return the places and the statistics of the entries of a column's index."""
    (index,) = (
        stream.content for stream in streams.streams if (stream.kind, stream.column) == (ROW_INDEX, column)
    )
    entries = [fields_of(entry) for entry in all_of(fields_of(bytes(index)), 1)]
    return [
        (list(read_varints(b"".join(all_of(entry, 1)))), bare_statistics(all_of(entry, 2)[0]))
        for entry in entries
    ]


def contents(streams: Streams, column: int) -> dict[int, bytes]:
    """A column's streams by their kinds."""
    return {stream.kind: bytes(stream.content) for stream in streams.streams if stream.column == column}


def judge_parts(rows: pa.Table, left: pa.Table, taken: EncodableColumn) -> None:
    """Parts of a column are encoded and described as pyarrow does a column of these rows alone.

    :param rows: 41,000, of which the second column has nulls first.
    :param left: the first column, which is pyarrow's.
    :param taken: the second.
    """
    for start, end in ((0, 9_000), (5_000, 30_001), (11_000, 41_000), (40_999, 41_000)):
        part = rows.slice(start, end - start).combine_chunks()
        (stripe,) = encode(left.slice(start, end - start), "uncompressed")
        column = taken.part(start, end).encoded(2, 10_000)
        made = insert_columns(Streams.of(stripe.body, stripe.lengths), {2: column})
        theirs, their_streams = by_pyarrow(part)
        assert bare_statistics(column.statistics) == bare_statistics(theirs[2])
        # One number alone has forms of the same length.
        assert len(part) == 1 or contents(made, 2)[DATA] == contents(their_streams, 2)[DATA]
        assert [group for _, group in row_groups(made, 2)] == [
            group for _, group in row_groups(their_streams, 2)
        ]
        assert (PRESENT in contents(made, 2)) == (part.column(1).null_count > 0)

"""Columns that count, made without pyarrow's encoder, are read as they were, and described as it does."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_hive_federation.acid.row_ids import renumbered
from airflow_hive_federation.orc.assembly import encode
from airflow_hive_federation.orc.encodable_columns import extract_columns, insert_columns
from airflow_hive_federation.orc.progressions import ArithmeticProgression
from airflow_hive_federation.orc.streams import Streams
from tests.support.orc_stripes import bare_statistics, by_pyarrow, read_stripe, row_groups

_COLUMNS = st.tuples(
    st.integers(-(2**40), 2**40) | st.sampled_from([0, -(2**63), 2**63 - 1 - 25_000]),
    st.sampled_from([1, 2, 3, 1000]) | st.integers(1, 2**20),
    st.sampled_from([2, 511, 512, 513, 10_000, 20_001]) | st.integers(2, 25_000),
)


def table(first: int, step: int, count: int) -> pa.Table:
    """The numbers, up or down, beside texts for pyarrow; in chunks."""
    last = first + step * (count - 1)
    fits = last < 2**63
    numbers = [first + step * row if fits else first - step * row for row in range(count)]
    ids = pa.array(numbers, pa.int64())
    cut = count // 3
    texts = pa.array(np.arange(count)).cast(pa.large_string())
    return pa.table({"text": texts, "id": pa.chunked_array([ids[:cut], ids[cut:]])})


@given(column=_COLUMNS, codec=st.sampled_from(["uncompressed", "zlib", "zstd"]))
@example(column=(2**63 - 1, 1000, 20_001), codec="zlib")
def test_they_are_read_as_they_were(column: tuple[int, int, int], codec: str) -> None:
    rows = table(*column)
    assert set(extract_columns(rows)[1]) == {2}
    (stripe,) = encode(rows, codec)
    assert read_stripe(stripe, rows, codec).column("id").equals(rows.combine_chunks().column("id"))


@given(column=_COLUMNS)
@example(column=(0, 1, 25_000))
@example(column=(2**63 - 1, 1000, 20_001))
def test_they_are_described_as_by_pyarrow(column: tuple[int, int, int]) -> None:
    rows = table(*column)
    left, extracted = extract_columns(rows)
    _, streams = by_pyarrow(left)
    encoded = {number: column.encoded(number, 10_000) for number, column in extracted.items()}
    ours = row_groups(insert_columns(streams, encoded), 2)
    statistics, theirs_streams = by_pyarrow(rows)
    theirs = row_groups(theirs_streams, 2)
    assert bare_statistics(encoded[2].statistics) == bare_statistics(statistics[2])
    assert [group for _, group in ours] == [group for _, group in theirs]
    assert [places[1] for places, _ in ours] == [at % 512 for at in range(0, len(rows), 10_000)]


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 4],
        [2, 1, 2],
        [1, None, 3],
        [7],
        # Their differences are all alike in 64 bits.
        [2**63 - 1, -(2**63), -(2**63) + 1],
        [0, 2**62, -(2**63), -(2**62)],
    ],
)
def test_others_are_left(values: list[int | None]) -> None:
    assert ArithmeticProgression.of(pa.chunked_array([pa.array(values, pa.int64())])) is None


def test_of_other_types() -> None:
    assert ArithmeticProgression.of(pa.chunked_array([pa.array([1, 2, 3], pa.int16())])) is None
    assert ArithmeticProgression.of(
        pa.chunked_array([pa.array([5, 3, 1], pa.int32())])
    ) == ArithmeticProgression(5, -2, 3)


@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "zstd", "snappy", "lz4"])
@pytest.mark.parametrize("first", [0, 2**33 + 5])
def test_rows_are_numbered_anew(codec: str, first: int) -> None:
    rows = table(0, 1, 25_000)
    (stripe,) = encode(rows, codec)
    moved = renumbered(stripe, 2, first, codec)
    ids = pa.array(np.arange(first, first + 25_000))
    expected = rows.set_column(1, "id", ids)
    assert read_stripe(moved, rows, codec).to_pydict() == expected.to_pydict()
    (anew,) = encode(expected, codec)
    assert (moved.columns, moved.statistics) == (anew.columns, anew.statistics)
    if codec == "uncompressed":
        made, wanted = (Streams.of(stripe.body, stripe.lengths) for stripe in (moved, anew))
        assert row_groups(made, 2) == row_groups(wanted, 2)
        assert made.encodings == wanted.encodings

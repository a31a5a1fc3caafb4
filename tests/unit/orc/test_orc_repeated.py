"""Columns of long runs are read as they were, and described as pyarrow's encoder describes them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_hive_federation.orc.assembly import encode
from airflow_hive_federation.orc.encodable_columns import extract_columns
from airflow_hive_federation.orc.repeated import RepeatedNumbers
from airflow_hive_federation.orc.streams import DATA, Streams
from tests.support.examples import examples
from tests.support.orc_stripes import bare_statistics, by_pyarrow, read_stripe, row_groups

_PIECES = st.lists(
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(1, 15_000)), min_size=1, max_size=6
)
#: The sum of no part of these is too great.
_SUMMED_PIECES = st.lists(
    st.tuples(st.integers(-(2**46), 2**46), st.integers(1, 15_000)), min_size=1, max_size=6
)


def events(pieces: list[tuple[int, int]]) -> pa.Table:
    """A table with two repeated columns, among others with columns below them."""
    numbers = np.concatenate([np.full(count, value, np.int64) for value, count in pieces])
    count = len(numbers)
    kind = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))])
    row = pa.array(
        [{"a": number if number % 3 else None, "b": [number] * (number % 3)} for number in range(count)], kind
    )
    return pa.table(
        {
            "first": row,
            "same": pa.array(np.full(count, -7, np.int32)),
            "id": np.arange(count) * 3 % 1009,
            "numbers": pa.chunked_array([numbers[: count // 2], numbers[count // 2 :]]),
            "last": row,
        }
    )


@examples(25)
@given(pieces=_PIECES, codec=st.sampled_from(["uncompressed", "zlib", "zstd"]))
def test_they_are_read_as_they_were(pieces: list[tuple[int, int]], codec: str) -> None:
    rows = events(pieces)
    (stripe,) = encode(rows, codec)
    assert read_stripe(stripe, rows, codec).equals(rows.combine_chunks())


@examples(25)
@given(pieces=_SUMMED_PIECES)
@example(pieces=[(2**63 - 1, 2)])
@example(pieces=[(2**63 - 1, 1)])
@example(pieces=[(-(2**63), 1)])
def test_they_are_described_as_by_pyarrow(pieces: list[tuple[int, int]]) -> None:
    numbers = np.concatenate([np.full(count, value, np.int64) for value, count in pieces])
    rows = pa.table({"id": pa.array(np.arange(len(numbers))).cast(pa.string()), "numbers": numbers})
    (stripe,) = encode(rows, "uncompressed")
    theirs, their_streams = by_pyarrow(rows)
    assert list(map(bare_statistics, stripe.columns)) == list(map(bare_statistics, theirs))
    streams = Streams.of(stripe.body, stripe.lengths)
    if RepeatedNumbers.of(rows.column("numbers")) is not None:
        # The column was made here, and comes before pyarrow's.
        assert [stream.column for stream in streams.streams if stream.kind == DATA] == [2, 1]
    assert _statistics(streams) == _statistics(their_streams)


def _statistics(streams: Streams) -> list[object]:
    return [statistics for _, statistics in row_groups(streams, 2)]


def test_places_in_runs() -> None:
    """Of a number and of another, each in runs of 512."""
    rows = pa.table({"id": np.arange(30_000), "numbers": np.repeat([5, 1000], [12_000, 18_000])})
    (stripe,) = encode(rows, "uncompressed")
    places = [place for place, _ in row_groups(Streams.of(stripe.body, stripe.lengths), 2)]
    # A run takes two bytes, the number's one or two, and one for the step.
    second = 24 * 4
    assert places == [[0, 0], [19 * 4, 10_000 - 19 * 512], [second + 15 * 5, 20_000 - 12_000 - 15 * 512]]


@pytest.mark.parametrize(
    "column",
    [
        pa.chunked_array([[1, 1, None, 1]]),
        pa.chunked_array([["a", "a"]]),
        pa.chunked_array([[1, 2] * 600]),
        pa.chunked_array([[]], pa.int64()),
        pa.chunked_array([[1, 1]], pa.int16()),
    ],
)
def test_other_columns_are_left_to_pyarrow(column: pa.ChunkedArray) -> None:
    assert RepeatedNumbers.of(column) is None


def test_one_column_is_left() -> None:
    rows = pa.table({"a": [1, 1], "b": [2, 2]})
    assert extract_columns(rows) == (rows.select(["b"]), {1: RepeatedNumbers((1,), (0, 2))})
    assert extract_columns(pa.table({"a": run_ends([1, 2], [3, 5])})) == (
        pa.table({"a": [1, 1, 1, 2, 2]}),
        {},
    )


def run_ends(values: list[int], ends: list[int]) -> pa.RunEndEncodedArray:
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), pa.array(values))


def test_run_ends_are_taken_as_they_are_or_decoded() -> None:
    short = run_ends(list(range(100)), list(range(30, 3_001, 30)))
    long = run_ends([7, 7, 8], [1_000, 1_001, 3_000])
    rows = pa.table({"id": np.arange(3_000).astype(str), "long": long, "short": short})
    left, extracted = extract_columns(rows)
    assert extracted == {2: RepeatedNumbers((7, 8), (0, 1_001, 3_000))}
    assert left.column_names == ["id", "short"]
    assert left.column("short").to_pylist() == [row // 30 for row in range(3_000)]

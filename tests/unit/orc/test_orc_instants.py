"""Timestamps made without pyarrow's encoder are read as they were, and encoded and described as by it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_hive_federation.orc.assembly import encode
from airflow_hive_federation.orc.encodable_columns import extract_columns
from airflow_hive_federation.orc.instants import Instants, shortened
from airflow_hive_federation.orc.streams import DATA, SECONDARY, Streams
from tests.support.examples import examples
from tests.support.orc_stripes import (
    bare_statistics,
    by_pyarrow,
    contents,
    judge_parts,
    read_stripe,
    row_groups,
)

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# From 1970 to 2100.
_SECONDS = 4_102_444_800
# The longest run. Of the last, which may be of few numbers, pyarrow may make another.
_RUN_BYTES = 2 + 512 * 8
#: Unit and time zone, rows, what all are multiples of, the share of nulls, and what is random.
_Shape = tuple[pa.DataType, int, int, float, int]
_SHAPES = st.tuples(
    st.sampled_from([*map(pa.timestamp, _PER_SECOND), pa.timestamp("us", "UTC")]),
    st.sampled_from([512, 1024, 10_000, 20_001]) | st.integers(512, 25_000),
    st.sampled_from([1, 10, 100, 1000, 10**6]),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.integers(0, 2**32),
)


def column(shape: _Shape) -> pa.ChunkedArray:
    """Random instants, in chunks that are slices."""
    kind, count, multiple, nulls, seed = shape
    chance = np.random.default_rng(seed)
    # Seconds that are seldom the same, of which pyarrow makes other runs.
    multiple = min(multiple, 1000 * _PER_SECOND[kind.unit])
    values = chance.integers(0, _SECONDS * _PER_SECOND[kind.unit], count) // multiple * multiple
    array = pa.array(values, pa.int64(), mask=chance.random(count) < nulls).cast(kind)
    cut = int(chance.integers(0, count))
    return pa.chunked_array([array[:cut], array[cut:]])


def table(shape: _Shape) -> pa.Table:
    """A table with the column, beside texts for pyarrow and in a struct."""
    instants = column(shape)
    texts = pa.array(np.arange(len(instants))).cast(pa.string())
    row = pa.StructArray.from_arrays([instants.combine_chunks(), texts], ["at", "text"])
    return pa.table({"id": texts, "at": instants, "row": row})


@examples(25)
@given(shape=_SHAPES, codec=st.sampled_from(["uncompressed", "zlib"]))
def test_they_are_read_as_they_were(shape: _Shape, codec: str) -> None:
    rows = table(shape)
    (stripe,) = encode(rows, codec)
    kind = pa.timestamp("ns", shape[0].tz)
    expected = rows.set_column(1, "at", rows.column("at").cast(kind)).combine_chunks()
    rows_read = read_stripe(stripe, rows, codec)
    assert rows_read.column("at").equals(expected.column("at"))
    assert rows_read.column("row").combine_chunks().field("at").equals(expected.column("at").combine_chunks())


@examples(25)
@given(shape=_SHAPES)
@example(shape=(pa.timestamp("us"), 25_000, 1, 0.1, 1))
def test_they_are_encoded_and_described_as_by_pyarrow(shape: _Shape) -> None:
    rows = table(shape)
    assert 2 in extract_columns(rows)[1] or rows.column("at").null_count > len(rows) - 512
    (stripe,) = encode(rows, "uncompressed")
    theirs, their_streams = by_pyarrow(rows)
    assert list(map(bare_statistics, stripe.columns)) == list(map(bare_statistics, theirs))
    streams = Streams.of(stripe.body, stripe.lengths)
    for number in (2, 4):
        ours, expected = contents(streams, number), contents(their_streams, number)
        valid = rows.column("at").is_valid().to_numpy()
        made = ours[DATA][:-_RUN_BYTES]
        assert made == expected[DATA][: len(made)]
        # Fractions that are short repeat, for which pyarrow begins another run.
        if shape[2] * 10_000 <= _PER_SECOND[shape[0].unit]:
            made = ours[SECONDARY][:-_RUN_BYTES]
            assert made == expected[SECONDARY][: len(made)]
        groups = row_groups(streams, number)
        assert [group for _, group in groups] == [group for _, group in row_groups(their_streams, number)]
        for group, (*_, skipped, _, of_fractions) in enumerate(places for places, _ in groups):
            assert skipped == of_fractions == np.count_nonzero(valid[: group * 10_000]) % 512


@pytest.mark.parametrize(
    ("nanoseconds", "stored"),
    # SerializationUtils' formatNanos, and the specification's examples.
    [
        (0, 0),
        (1, 1 << 3),
        (10, 10 << 3),
        (100, 1 << 3 | 1),
        (1000, 1 << 3 | 2),
        (100_000, 1 << 3 | 4),
        (123_000_000, 123 << 3 | 5),
        (100_000_000, 1 << 3 | 7),
        (999_999_999, 999_999_999 << 3),
    ],
)
def test_zeros_are_taken_off(nanoseconds: int, stored: int) -> None:
    for per_second in _PER_SECOND.values():
        value, lost = divmod(nanoseconds * per_second, 10**9)
        if not lost:
            assert shortened(np.array([value, 0], np.int64), per_second).tolist() == [stored, 0]


def test_parts_are_stripes_of_their_own() -> None:
    chance = np.random.default_rng(7)
    values = pa.array(chance.integers(0, 2 * 10**15, 30_000)).cast(pa.timestamp("us"))
    instants = pa.chunked_array([pa.nulls(11_000, pa.timestamp("us")), values])
    rows = pa.table({"id": pa.array(np.arange(41_000)).cast(pa.string()), "at": instants})
    left, extracted = extract_columns(rows)
    judge_parts(rows, left, extracted[2])


@pytest.mark.parametrize(
    "values",
    [
        # The early ones are early_timestamps'.
        [-1, *range(3000)],
        # The same second on end.
        [*range(3000)],
        [None] * 3000,
        [],
        [10**6, 3 * 10**6],
    ],
)
def test_others_are_left_to_pyarrow(values: list[int | None]) -> None:
    assert Instants.of(pa.chunked_array([pa.array(values, pa.timestamp("us"))])) is None

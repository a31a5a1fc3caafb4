"""Floats made without pyarrow's encoder are read as they were, and described as it describes them."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_hive_federation.model.protobuf import all_of, fields_of
from airflow_hive_federation.orc.assembly import encode
from airflow_hive_federation.orc.encodable_columns import extract_columns
from airflow_hive_federation.orc.floats import Floats
from airflow_hive_federation.orc.streams import DATA, Streams
from tests.support.examples import examples
from tests.support.orc_stripes import (
    bare_statistics,
    by_pyarrow,
    contents,
    judge_parts,
    read_stripe,
    row_groups,
)

#: Type, rows, the share of nulls, and what is random.
_Shape = tuple[pa.DataType, int, float, int]
_SHAPES = st.tuples(
    st.sampled_from([pa.float32(), pa.float64()]),
    st.sampled_from([1, 10_000, 20_001]) | st.integers(1, 25_000),
    st.sampled_from([0.0, 0.1, 0.9999]),
    st.integers(0, 2**32),
)


def table(shape: _Shape) -> pa.Table:
    """Random numbers as a column, in chunks that are slices, and as a struct's."""
    kind, count, nulls, seed = shape
    chance = np.random.default_rng(seed)
    numbers = chance.normal(size=count) * 10.0 ** chance.integers(-30, 30, count)
    is_null = chance.random(count) < nulls
    # Columns of nulls only are pyarrow's.
    is_null[-1] = False
    floats = pa.array(numbers, mask=is_null).cast(kind)
    cut = int(chance.integers(0, count))
    row = pa.StructArray.from_arrays([floats], ["number"])
    return pa.table(
        {"number": pa.chunked_array([floats[:cut], floats[cut:]]), "row": row, "id": np.arange(count)}
    )


@examples(25)
@given(shape=_SHAPES, codec=st.sampled_from(["uncompressed", "zlib", "zstd"]))
@example(shape=(pa.float64(), 25_000, 0.1, 1), codec="zlib")
def test_they_are_read_as_they_were(shape: _Shape, codec: str) -> None:
    rows = table(shape)
    (stripe,) = encode(rows, codec)
    assert read_stripe(stripe, rows, codec).equals(rows.combine_chunks())


@examples(25)
@given(shape=_SHAPES)
@example(shape=(pa.float32(), 25_000, 0.1, 2))
@example(shape=(pa.float64(), 20_000, 0.0, 3))
def test_they_are_encoded_and_described_as_by_pyarrow(shape: _Shape) -> None:
    rows = table(shape)
    (stripe,) = encode(rows, "uncompressed")
    theirs, their_streams = by_pyarrow(rows)
    streams = Streams.of(stripe.body, stripe.lengths)
    for number in (1, 3):
        assert numbers_of(bare_statistics(stripe.columns[number])) == numbers_of(
            bare_statistics(theirs[number])
        )
        assert contents(streams, number)[DATA] == contents(their_streams, number)[DATA]
        groups, expected = row_groups(streams, number), row_groups(their_streams, number)
        assert [numbers_of(group) for _, group in groups] == [numbers_of(group) for _, group in expected]
        assert [places[-1] for places, _ in groups] == [places[-1] for places, _ in expected]
    assert stripe.columns[2][:2] == theirs[2][:2]


def numbers_of(statistics: list[Any]) -> list[Any]:
    """Return the values of statistics; of sums, which depend on the order, the first digits."""
    (bounds,) = (value for field, value in statistics if field == 3)
    numbers = [(field, struct.unpack("<d", value)[0]) for field, _, value in bounds]
    sums = [pytest.approx(value, rel=1e-9) for field, value in numbers if field == 3]
    return [
        [field for field in statistics if field[0] != 3],
        [field for field in numbers if field[0] != 3],
        sums,
    ]


def test_parts_are_stripes_of_their_own() -> None:
    numbers = pa.chunked_array([pa.nulls(11_000, pa.float64()), np.arange(1.0, 30_001.0)])
    rows = pa.table({"id": pa.array(np.arange(41_000)).cast(pa.string()), "number": numbers})
    left, extracted = extract_columns(rows)
    judge_parts(rows, left, extracted[2])


@pytest.mark.parametrize("values", [[-1.0, -0.0, 0.0], [0.0, -0.0, 1.0], [-1.0, 0.0, -0.0], [-0.0, 0.0, 1.0]])
def test_both_zeros_lie_between_the_bounds(values: list[float]) -> None:
    floats = Floats.of(pa.chunked_array([values]))
    assert floats is not None
    (bounds,) = all_of(fields_of(floats.encoded(1, 10_000).statistics), 3)
    low, high = (
        struct.unpack("<d", bound)[0] for number in (1, 2) for bound in all_of(fields_of(bounds), number)
    )
    assert math.copysign(1, low) == -1
    assert math.copysign(1, high) == 1


@pytest.mark.parametrize(
    "left",
    [
        pa.chunked_array([[1.0, math.nan]]),
        pa.chunked_array([[1.0, math.inf]]),
        pa.chunked_array([[1.0, -math.inf]]),
        pa.chunked_array([[1e308, 1e308]]),
        pa.chunked_array([pa.nulls(3, pa.float64())]),
        pa.chunked_array([], pa.float32()),
        pa.chunked_array([pa.array([1.5], pa.float16())]),
        pa.chunked_array([[1, 2]]),
    ],
)
def test_other_columns_are_left_to_pyarrow(left: pa.ChunkedArray) -> None:
    assert Floats.of(left) is None

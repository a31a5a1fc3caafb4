"""Decimals made without pyarrow's encoder are read as they were, and described as it describes them."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_hive_federation.orc.assembly import encode
from airflow_hive_federation.orc.decimals import Decimals
from airflow_hive_federation.orc.encodable_columns import extract_columns
from airflow_hive_federation.orc.streams import DATA, PRESENT, Streams
from tests.support.examples import examples
from tests.support.orc_stripes import (
    bare_statistics,
    by_pyarrow,
    contents,
    judge_parts,
    read_stripe,
    row_groups,
)

_SHAPES = st.tuples(
    st.integers(1, 18).flatmap(lambda digits: st.tuples(st.just(digits), st.integers(0, digits))),
    st.sampled_from([1, 511, 512, 1024, 10_000, 20_001]) | st.integers(1, 25_000),
    st.sampled_from([0.0, 0.1, 0.9999]),
    st.integers(0, 2**32),
)


def column(shape: tuple[tuple[int, int], int, float, int]) -> pa.ChunkedArray:
    """Random decimals of all lengths, in chunks that are slices."""
    (digits, scale), count, nulls, seed = shape
    chance = np.random.default_rng(seed)
    length = chance.integers(0, digits + 1, count)
    values = (chance.integers(-(10**18) + 1, 10**18, count) // 10 ** (18 - length)).clip(-(10**digits) + 1)
    valid = chance.random(count) >= nulls
    # Columns of nulls only are pyarrow's.
    valid[-1] = True
    unscaled = [int(value) if ok else None for value, ok in zip(values, valid, strict=True)]
    numbers = array(unscaled, digits, scale)
    cut = int(chance.integers(0, count))
    return pa.chunked_array([numbers[:cut], numbers[cut:]])


def array(values: list[int | None], digits: int, scale: int) -> pa.Array:
    decimals = [None if value is None else Decimal(value).scaleb(-scale) for value in values]
    return pa.array(decimals, pa.decimal128(digits, scale))


def acid(decimals: pa.ChunkedArray) -> pa.Table:
    """A table with the column among others of a struct, and as one of the table's."""
    count = len(decimals)
    texts = pa.array(np.arange(count)).cast(pa.string())
    in_one = decimals.combine_chunks()
    row = pa.StructArray.from_arrays([texts, in_one, texts, in_one], ["a", "first", "b", "second"])
    cut = count // 3
    rows = pa.chunked_array([row[:cut], row[cut:]])
    return pa.table({"id": texts, "amount": decimals, "row": rows, "last": decimals})


@examples(25)
@given(shape=_SHAPES, codec=st.sampled_from(["uncompressed", "zlib", "zstd"]))
@example(shape=((18, 0), 20_000, 0.0, 1), codec="zlib")
@example(shape=((18, 18), 20_001, 0.1, 2), codec="zstd")
def test_they_are_read_as_they_were(shape: tuple[tuple[int, int], int, float, int], codec: str) -> None:
    rows = acid(column(shape))
    (stripe,) = encode(rows, codec)
    assert read_stripe(stripe, rows, codec).equals(rows.combine_chunks())


@examples(25)
@given(shape=_SHAPES)
@example(shape=((12, 2), 25_000, 0.1, 3))
@example(shape=((9, 4), 20_480, 0.0, 4))
def test_they_are_encoded_and_described_as_by_pyarrow(shape: tuple[tuple[int, int], int, float, int]) -> None:
    rows = acid(column(shape))
    (stripe,) = encode(rows, "uncompressed", dictionaries=False)
    theirs, their_streams = by_pyarrow(rows)
    assert list(map(bare_statistics, stripe.columns)) == list(map(bare_statistics, theirs))
    streams = Streams.of(stripe.body, stripe.lengths)
    for number in (2, 5, 7, 8):
        assert contents(streams, number)[DATA] == contents(their_streams, number)[DATA]
        groups, expected = row_groups(streams, number), row_groups(their_streams, number)
        assert [group for _, group in groups] == [group for _, group in expected]
        # Those of nulls are others: their runs are.
        assert [places[-3:] for places, _ in groups] == [places[-3:] for places, _ in expected]
        judge_presence(rows.column("amount"), contents(streams, number), [places for places, _ in groups])


def judge_presence(amounts: pa.ChunkedArray, made: dict[int, bytes], places: list[list[int]]) -> None:
    """The places of nulls are of the byte that has the row group's first."""
    assert (PRESENT in made) == (amounts.null_count > 0)
    if not amounts.null_count:
        assert {len(place) for place in places} == {3}
        return
    octets = np.packbits(amounts.is_valid().to_numpy())
    for group, (offset, skipped, bits, *_) in enumerate(places):
        assert made[PRESENT][offset] >= 128
        assert made[PRESENT][offset + 1 + skipped] == octets[group * 10_000 // 8]
        assert bits == 0


@pytest.mark.parametrize(
    ("values", "scale", "texts"),
    [
        ([150, -200, 5], 2, [b"-2", b"1.5", b"-0.45"]),
        ([-5, -7], 3, [b"-0.007", b"-0.005", b"-0.012"]),
        ([0, 100], 2, [b"0", b"1", b"1"]),
        ([-100, 20], 0, [b"-100", b"20", b"-80"]),
        ([10**18 - 1] * 30, 0, [b"9" * 18, b"9" * 18, b"29999999999999999970"]),
        ([-(10**18) + 1] * 30, 18, [b"-0." + b"9" * 18, b"-0." + b"9" * 18, b"-29.99999999999999997"]),
    ],
)
def test_statistics(values: list[int | None], scale: int, texts: list[bytes]) -> None:
    decimals = Decimals.of(pa.chunked_array([array(values, 18, scale)]))
    assert decimals is not None
    bounds = [(field, 2, text) for field, text in enumerate(texts, 1)]
    assert bare_statistics(decimals.encoded(1, 10_000).statistics) == [(1, len(values)), (6, bounds), (10, 0)]


def test_parts_are_stripes_of_their_own() -> None:
    nulls = pa.nulls(11_000, pa.decimal128(5, 1))
    amounts = array([number * 7 % 100_000 - 3 for number in range(30_000)], 5, 1)
    texts = pa.array(np.arange(41_000)).cast(pa.string())
    rows = pa.table({"id": texts, "amount": pa.chunked_array([nulls, amounts])})
    left, extracted = extract_columns(rows)
    judge_parts(rows, left, extracted[2])


@pytest.mark.parametrize(
    "left",
    [
        pa.chunked_array([array([1, 2], 19, 2)]),
        pa.chunked_array([pa.nulls(3, pa.decimal128(5, 2))]),
        pa.chunked_array([], pa.decimal128(5, 2)),
        pa.chunked_array([pa.array([100], pa.decimal128(5, 0)).cast(pa.decimal128(5, -2))]),
        pa.chunked_array([[1, 2]]),
    ],
)
def test_other_columns_are_left_to_pyarrow(left: pa.ChunkedArray) -> None:
    assert Decimals.of(left) is None


def test_fields_of_structs_with_nulls_are_left_to_pyarrow() -> None:
    kind = pa.struct([("id", pa.string()), ("amount", pa.decimal128(5, 1))])
    rows = pa.table({"row": pa.array([{"id": "a", "amount": Decimal(1)}, None], kind)})
    assert extract_columns(rows) == (rows, {})
    row = rows.slice(0, 1)
    left, extracted = extract_columns(row)
    assert left.column("row").to_pylist() == [{"id": "a"}]
    assert list(extracted) == [3]


def test_structs_may_be_empty_afterwards() -> None:
    rows = pa.table({"row": pa.array([{"amount": Decimal(1)}, {"amount": Decimal(2)}])})
    left, extracted = extract_columns(rows)
    assert left.to_pylist() == [{"row": {}}, {"row": {}}]
    assert list(extracted) == [2]
    (stripe,) = encode(rows, "zlib")
    assert read_stripe(stripe, rows, "zlib").equals(rows)

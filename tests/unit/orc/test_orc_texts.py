"""Texts made without pyarrow's encoder are read as they were, and described as it describes them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_hive_federation.orc.assembly import encode
from airflow_hive_federation.orc.encodable_columns import extract_columns
from airflow_hive_federation.orc.streams import DATA, LENGTH, Streams
from airflow_hive_federation.orc.texts import Texts
from tests.support.examples import examples
from tests.support.orc_stripes import (
    bare_statistics,
    by_pyarrow,
    contents,
    judge_parts,
    read_stripe,
    row_groups,
)

_LETTERS = np.array(list("aäz€😀\x7f\x00"))
#: Type, rows, the shortest and the longest text, the share of nulls, and what is random.
_Shape = tuple[pa.DataType, int, tuple[int, int], float, int]
_SHAPES = st.tuples(
    st.sampled_from([pa.string(), pa.binary()]),
    st.sampled_from([1, 511, 512, 1024, 10_000, 20_001]) | st.integers(1, 25_000),
    st.sampled_from([(0, 0), (0, 1), (3, 3), (0, 20), (100, 230)]),
    st.sampled_from([0.0, 0.1, 0.9999]),
    st.integers(0, 2**32),
)


def column(shape: _Shape) -> pa.ChunkedArray:
    """Random texts, in chunks that are slices."""
    kind, count, (low, high), nulls, seed = shape
    chance = np.random.default_rng(seed)
    letters = "".join(chance.choice(_LETTERS, 1000))
    starts, lengths = chance.integers(0, 700, count), chance.integers(low, high + 1, count)
    texts = [letters[start : start + length] for start, length in zip(starts, lengths, strict=True)]
    is_null = chance.random(count) < nulls
    # Columns of nulls only are pyarrow's.
    is_null[-1] = False
    all_texts = pa.array(texts, pa.string(), mask=is_null).cast(kind)
    cut = int(chance.integers(0, count))
    return pa.chunked_array([all_texts[:cut], all_texts[cut:]])


def acid(texts: pa.ChunkedArray) -> pa.Table:
    """A table with the column among others of a struct, and as one of the table's."""
    numbers = pa.array(np.arange(len(texts)))
    in_one = texts.combine_chunks()
    row = pa.StructArray.from_arrays([numbers, in_one, numbers, in_one], ["a", "first", "b", "second"])
    cut = len(texts) // 3
    rows = pa.chunked_array([row[:cut], row[cut:]])
    only = pa.StructArray.from_arrays([in_one], ["text"])
    return pa.table({"id": numbers, "text": texts, "row": rows, "only": only, "last": texts})


@examples(25)
@given(shape=_SHAPES, codec=st.sampled_from(["uncompressed", "zlib", "zstd"]))
@example(shape=(pa.string(), 25_000, (0, 20), 0.1, 1), codec="zlib")
def test_they_are_read_as_they_were(shape: _Shape, codec: str) -> None:
    rows = acid(column(shape))
    (stripe,) = encode(rows, codec, dictionaries=False)
    assert read_stripe(stripe, rows, codec).equals(rows.combine_chunks())


@examples(25)
@given(shape=_SHAPES)
@example(shape=(pa.string(), 25_000, (100, 230), 0.1, 2))
@example(shape=(pa.string(), 20_480, (3, 3), 0.0, 3))
def test_they_are_encoded_and_described_as_by_pyarrow(shape: _Shape) -> None:
    rows = acid(column(shape))
    (stripe,) = encode(rows, "uncompressed", dictionaries=False)
    theirs, their_streams = by_pyarrow(rows)
    assert list(map(bare_statistics, stripe.columns)) == list(map(bare_statistics, theirs))
    streams = Streams.of(stripe.body, stripe.lengths)
    for number in (2, 5, 7, 9):
        assert contents(streams, number)[DATA] == contents(their_streams, number)[DATA]
        groups, expected = row_groups(streams, number), row_groups(their_streams, number)
        assert [group for _, group in groups] == [group for _, group in expected]
        assert [places[-3] for places, _ in groups] == [places[-3] for places, _ in expected]


def test_places_of_lengths() -> None:
    """Lengths are in runs of 512: of one length four bytes, of others some bits each and a header."""
    count = 25_000
    same = pa.array(["abc"] * count)
    short = pa.array(["x" * (number % 9) for number in range(count)])
    long = pa.array(["x" * (number % 9 * 100) for number in range(count)])
    rows = pa.table({"same": same, "short": short, "long": long, "id": np.arange(count)})
    (stripe,) = encode(rows, "uncompressed", dictionaries=False)
    streams = Streams.of(stripe.body, stripe.lengths)
    for number, header, run_bytes in ((1, "c1ff", 4), (2, "47ff", 2 + 256), (3, "5fff", 2 + 1024)):
        places = [place[-2:] for place, _ in row_groups(streams, number)]
        assert places == [[0, 0], [19 * run_bytes, 272], [39 * run_bytes, 32]]
        lengths = contents(streams, number)[LENGTH]
        assert [lengths[at : at + 2].hex() for at, _ in places] == [header] * 3


def test_parts_are_stripes_of_their_own() -> None:
    texts = pa.chunked_array([pa.nulls(11_000, pa.string()), [f"t{number}" for number in range(30_000)]])
    rows = pa.table({"id": pa.array(np.arange(41_000)).cast(pa.large_string()), "text": texts})
    left, extracted = extract_columns(rows, texts=True)
    judge_parts(rows, left, extracted[2])


@pytest.mark.parametrize(
    "left",
    [
        pa.chunked_array([["x" * 1025]]),
        pa.chunked_array([pa.nulls(3, pa.string())]),
        pa.chunked_array([], pa.string()),
        pa.chunked_array([pa.array(["a"], pa.large_string())]),
        pa.chunked_array([pa.array(["a"]).dictionary_encode()]),
        pa.chunked_array([[1, 2]]),
    ],
)
def test_other_columns_are_left_to_pyarrow(left: pa.ChunkedArray) -> None:
    assert Texts.of(left) is None


def test_texts_are_left_to_pyarrow_where_they_get_dictionaries() -> None:
    rows = pa.table({"id": ["a", "b"], "text": ["c", "d"]})
    assert extract_columns(rows) == (rows, {})
    assert list(extract_columns(rows, texts=True)[1]) == [1]

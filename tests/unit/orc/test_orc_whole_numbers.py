"""Whole numbers made without pyarrow's encoder are read as they were, and described as it describes them."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_hive_federation.orc import whole_numbers
from airflow_hive_federation.orc.assembly import encode
from airflow_hive_federation.orc.encodable_columns import extract_columns
from airflow_hive_federation.orc.integers import RUN, runs_of
from airflow_hive_federation.orc.streams import DATA, Streams
from airflow_hive_federation.orc.whole_numbers import WholeNumbers
from tests.support.examples import examples, seeds
from tests.support.orc_stripes import (
    bare_statistics,
    by_pyarrow,
    contents,
    judge_parts,
    read_stripe,
    row_groups,
)

_BITS = {pa.int16(): 16, pa.int32(): 32, pa.int64(): 64, pa.date32(): 32}
#: How numbers follow each other, each with so many bits at most.
_FORMS = ["random", "small", "rising", "falling", "steep", "repeated", "counting", "skewed", "mixed"]
_Shape = tuple[pa.DataType, str, int, float, int]
_SHAPES = st.tuples(
    st.sampled_from(list(_BITS)),
    st.sampled_from(_FORMS),
    st.sampled_from([1, 2, 511, 512, 513, 1024, 10_000, 20_001]) | st.integers(1, 25_000),
    st.sampled_from([0.0, 0.1, 0.9999]),
    st.integers(0, 2**32),
)


def numbers(form: str, bits: int, count: int, chance: np.random.Generator) -> np.ndarray:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    integers = chance.integers(low, high, count, endpoint=True)
    match form:
        case "random":
            # Of all lengths, but of one in each part.
            made = integers >> np.repeat(chance.integers(0, bits, -(-count // 1000)), 1000)[:count]
        case "small":
            made = integers % 16
        case "rising" | "falling":
            step = min(250, (high - low) // count)
            rising = np.cumsum(chance.integers(0, step, count, endpoint=True))
            made = low + rising if form == "rising" else high - rising
        case "steep":
            made = np.sort(integers)
        case "repeated":
            made = np.repeat(integers, 40)[:count]
        case "counting":
            made = low + np.arange(count) % min(high, 2**40)
        case "skewed":
            made = np.where(integers % 50 == 0, integers, integers % 100)
        case _:
            parts = [
                numbers(form, bits, 777, chance) for form in chance.choice(_FORMS[:-1], count // 777 + 1)
            ]
            made = np.concatenate(parts)[:count]
    return made


def column(shape: _Shape) -> pa.ChunkedArray:
    """Numbers of such a shape, in chunks that are slices."""
    kind, form, count, nulls, seed = shape
    chance = np.random.default_rng(seed)
    is_null = chance.random(count) < nulls
    # Columns of nulls only are pyarrow's.
    is_null[-1] = False
    values = numbers(form, _BITS[kind], count, chance)
    plain = pa.int32() if kind == pa.date32() else kind
    array = pa.array(values, pa.int64(), mask=is_null).cast(plain).cast(kind)
    cut = int(chance.integers(0, count))
    return pa.chunked_array([array[:cut], array[cut:]])


def acid(numbers: pa.ChunkedArray) -> pa.Table:
    """A table with the column among others of a struct, and as one of the table's."""
    texts = pa.array(np.arange(len(numbers))).cast(pa.string())
    in_one = numbers.combine_chunks()
    row = pa.StructArray.from_arrays([texts, in_one, texts, in_one], ["a", "first", "b", "second"])
    cut = len(numbers) // 3
    rows = pa.chunked_array([row[:cut], row[cut:]])
    return pa.table({"id": texts, "number": numbers, "row": rows, "last": numbers})


def whatever_they_are():
    """Take numbers of which pyarrow's encoder makes less, too."""
    return patch.object(whole_numbers, "has_shorter_form", return_value=False)


@examples(60)
@given(shape=_SHAPES, codec=st.sampled_from(["uncompressed", "zlib"]))
@example(shape=(pa.int64(), "mixed", 25_000, 0.0, 1), codec="uncompressed")
@example(shape=(pa.int64(), "steep", 20_480, 0.1, 2), codec="zlib")
def test_they_are_read_as_they_were(shape: _Shape, codec: str) -> None:
    rows = acid(column(shape))
    with whatever_they_are():
        (stripe,) = encode(rows, codec)
    assert read_stripe(stripe, rows, codec).equals(rows.combine_chunks())


@examples(40)
@given(shape=_SHAPES)
@example(shape=(pa.date32(), "random", 25_000, 0.1, 3))
@example(shape=(pa.int64(), "rising", 20_480, 0.0, 4))
def test_they_are_described_as_by_pyarrow(shape: _Shape) -> None:
    rows = acid(column(shape))
    with whatever_they_are():
        (stripe,) = encode(rows, "uncompressed")
        # Not by test_orc_progressions.py's or test_orc_repeated.py's.
        is_ours = isinstance(extract_columns(rows)[1][2], WholeNumbers)
    theirs, their_streams = by_pyarrow(rows)
    streams = Streams.of(stripe.body, stripe.lengths)
    assert without_large_sums(list(map(bare_statistics, stripe.columns)), shape) == without_large_sums(
        list(map(bare_statistics, theirs)), shape
    )
    for number in (2, 5, 7, 8):
        groups, expected = row_groups(streams, number), row_groups(their_streams, number)
        ours = without_large_sums([group for _, group in groups], shape)
        assert ours == without_large_sums([group for _, group in expected], shape)
        if is_ours:
            judge_places(
                rows.column("number"), contents(streams, number)[DATA], [place for place, _ in groups]
            )


def without_large_sums(statistics: list[list], shape: _Shape) -> list:
    """Statistics without the sums of numbers so large that pyarrow's sum may overflow on its way."""
    if shape[0] != pa.int64():
        return statistics
    return [
        [
            (field[0], [field for field in field[1] if field[0] != 3]) if field[0] == 2 else field
            for field in group
        ]
        for group in statistics
    ]


def judge_places(numbers: pa.ChunkedArray, data: bytes, places: list[list[int]]) -> None:
    """At the place of a row group its numbers begin, after so many others."""
    valid = numbers.is_valid().to_numpy()
    values = numbers.drop_null().cast(pa.int32() if numbers.type == pa.date32() else numbers.type).to_numpy()
    for group, (*_, offset, inside) in enumerate(places):
        before = int(np.count_nonzero(valid[: group * 10_000]))
        assert inside == before % RUN
        assert data[offset:] == runs_of(values[before - inside :]).content


@pytest.mark.parametrize("kind", list(_BITS))
@pytest.mark.parametrize("form", _FORMS)
def test_nothing_is_taken_of_which_pyarrow_makes_less(form: str, kind: pa.DataType) -> None:
    numbers = column((kind, form, 25_000, 0.0, 5))
    encodable = WholeNumbers.of(numbers)
    assert (encodable is None) == (form in {"repeated", "skewed", "mixed"})
    if encodable is not None:
        _, streams = by_pyarrow(pa.table({"number": numbers}))
        made = encodable.encoded(1, 10_000).streams[-1].content
        assert len(made) < 1.05 * len(contents(streams, 1)[DATA])


@pytest.mark.parametrize("seed", seeds(3))
def test_of_random_numbers_streams_are_pyarrows(seed: int) -> None:
    chance = np.random.default_rng(seed)
    # Of shorter ones, some are equal to those before them, for which pyarrow begins another run.
    for bits in range(14, 63):
        values = chance.integers(-(1 << bits), 1 << bits, 3000)
        _, streams = by_pyarrow(pa.table({"number": pa.array(values)}))
        assert runs_of(values).content == contents(streams, 1)[DATA], bits


@pytest.mark.parametrize(
    ("values", "encoded"),
    [
        # The first two are the specification's.
        ([23713, 43806, 57005, 48879], "5e035ca1ab1edeadbeef"),
        ([2, 3, 5, 7, 11, 13, 17, 19, 23, 29], "c609020222424246"),
        ([10_000] * 5, "c004904e00"),
        ([7], "c0000700"),
        ([], ""),
    ],
)
def test_runs(values: list[int], encoded: str) -> None:
    assert runs_of(np.array(values, np.int64), signed=False).content.hex() == encoded


def test_parts_are_stripes_of_their_own() -> None:
    chance = np.random.default_rng(7)
    numbers = pa.chunked_array([pa.nulls(11_000, pa.int64()), chance.integers(0, 10**6, 30_000)])
    rows = pa.table({"id": pa.array(np.arange(41_000)).cast(pa.string()), "number": numbers})
    left, extracted = extract_columns(rows)
    judge_parts(rows, left, extracted[2])


@pytest.mark.parametrize(
    "left",
    [
        pa.chunked_array([pa.array([1, 2, 9] * 1000, pa.int8())]),
        pa.chunked_array([pa.nulls(3000, pa.int32())]),
        pa.chunked_array([], pa.int64()),
        pa.chunked_array([np.arange(3000) / 2]),
        pa.chunked_array([np.arange(511) * 7 % 99]),
    ],
)
def test_other_columns_are_left_to_pyarrow(left: pa.ChunkedArray) -> None:
    assert WholeNumbers.of(left) is None

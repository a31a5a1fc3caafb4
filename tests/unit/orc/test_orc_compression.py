"""Stripes compressed here are those that ORC's own writer makes, their row indexes included."""

from __future__ import annotations

import io
import sys
import zlib
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.protobuf import all_of, fields_of, number_of
from airflow_hive_federation.orc import compression
from airflow_hive_federation.orc.assembly import encode
from airflow_hive_federation.orc.compression import BLOCK_BYTES, CompressedStream, compressed
from airflow_hive_federation.orc.encodable_columns import extract_columns
from airflow_hive_federation.orc.nested import whole_nested
from airflow_hive_federation.orc.streams import Streams
from airflow_hive_federation.orc.tail import locate_footer
from tests.support.orc_stripes import read_stripe


def values(chance: np.random.Generator, count: int) -> dict[str, pa.Array]:
    """A column of each type; some have streams that are longer than a block."""
    numbers = chance.integers(-(2**31), 2**31 - 1, count)
    # Few of them are long: these are left to pyarrow, others are made (test_orc_whole_numbers.py).
    skewed = np.where(numbers % 50 == 0, numbers, numbers % 100)
    few = [f"v{number}" for number in chance.integers(0, 500, count)]
    texts = [f"v{number}" * 3 for number in chance.integers(0, 10**9, count)]
    prices = [Decimal(int(number)) / 100 for number in chance.integers(-(10**15), 10**15, count)]
    lists = [[int(number)] * (number % 4) for number in numbers]
    maps = [[(f"k{number}", int(number))] * (number % 2) for number in numbers]
    structs = [
        {"a": int(number) if number % 3 else None, "b": None if number % 7 else {"c": "x"}}
        for number in numbers
    ]
    return {
        "boolean": pa.array(numbers % 2 == 0),
        "tinyint": pa.array(numbers % 100, pa.int8()),
        "smallint": pa.array(skewed % 30_000, pa.int16()),
        "int": pa.array(skewed, pa.int32()),
        "bigint": pa.array(skewed * 2**31),
        "random": pa.array(numbers),
        "constant": pa.array(np.full(count, 7)),
        "float": pa.array(chance.random(count), pa.float32()),
        "double": pa.array(chance.random(count)),
        "string": pa.array(texts),
        "dictionary": pa.array(few),
        "binary": pa.array(texts).cast(pa.binary()),
        "date": pa.array(skewed % 50_000, pa.int32()).cast(pa.date32()),
        "timestamp": pa.array((np.abs(skewed) + 1_420_070_400) * 10**9 + 5, pa.timestamp("ns")),
        "local": pa.array((np.abs(skewed) + 1_420_070_400) * 10**6, pa.timestamp("us", "UTC")),
        "decimal": pa.array(prices, pa.decimal128(20, 2)),
        "array": pa.array(lists),
        "map": pa.array(maps, pa.map_(pa.string(), pa.int64())),
        "struct": pa.array(structs),
    }


def table(seed: int, count: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    columns = values(chance, count)
    for name, array in list(columns.items()):
        for share in (0.2, 1.0):
            places = pa.array(np.arange(count), mask=chance.random(count) < share)
            columns[f"{name} {share}"] = array.take(places)
    return pa.table(columns)


def left_to_pyarrow(rows: pa.Table) -> pa.Table:
    """The columns that are not made without its encoder."""
    texts = pa.array(np.arange(len(rows))).cast(pa.large_string())
    made = [
        name
        for name in rows.column_names
        if extract_columns(pa.table({"text": texts, name: rows.column(name)}))[1]
    ]
    return rows.drop_columns(made)


def by_arrow(rows: pa.Table, codec: str) -> bytes:
    """The first stripe of pyarrow's own writer."""
    sink = pa.BufferOutputStream()
    with orc.ORCWriter(
        sink,
        compression=codec,
        compression_block_size=BLOCK_BYTES,
        stripe_size=1 << 40,
        row_index_stride=10_000,
        dictionary_key_size_threshold=0.8,
    ) as writer:
        writer.write(rows)
    content = sink.getvalue().to_pybytes()
    _, _, footer = locate_footer(io.BytesIO(content), "pyarrow's")
    information = fields_of(all_of(footer, 3)[0])
    start, *lengths = (number_of(information, number) for number in range(1, 5))
    return content[start : start + sum(lengths)]


@pytest.mark.parametrize("codec", ["snappy", "zstd"])
@pytest.mark.parametrize("count", [500, 10_000, 45_001])
def test_they_are_pyarrows_byte_for_byte(codec: str, count: int) -> None:
    rows = left_to_pyarrow(table(count, count))
    plain = {"boolean", "tinyint", "smallint", "int", "bigint", "string", "date", "timestamp", "local", "map"}
    assert plain | {f"{name} 0.2" for name in plain} < set(rows.column_names)
    (stripe,) = encode(rows, codec)
    # Without what is hidden in nulls.
    assert stripe.body == by_arrow(whole_nested(rows), codec)


def test_unions_are_laid_out_as_pyarrow_does() -> None:
    kinds = pa.array(np.arange(25_000) % 2, pa.int8())
    union = pa.UnionArray.from_sparse(kinds, [pa.array(range(25_000)), pa.array(["a", "bc"] * 12_500)])
    rows = pa.table({"u": union})
    (stripe,) = encode(rows, "zstd")
    assert stripe.body == by_arrow(rows, "zstd")


@pytest.mark.parametrize("codec", ["zlib", "lz4"])
def test_they_hold_what_was_compressed(codec: str) -> None:
    rows = table(5, 30_000)
    (plain,) = encode(rows, "uncompressed")
    (stripe,) = encode(rows, codec)
    assert len(stripe.body) < len(plain.body)
    assert read_stripe(stripe, rows, codec).equals(read_stripe(plain, rows, "uncompressed"))


def test_executors_without_isal_deflate_by_zlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal", None)
    content = b"the same words again, and the same words again; " * 50
    deflated = compression._deflate()(content)
    assert deflated == zlib.compress(content, 1, wbits=-15)
    monkeypatch.undo()
    quickly = compression._deflate()(content)
    assert quickly != deflated
    assert zlib.decompress(quickly, wbits=-15) == zlib.decompress(deflated, wbits=-15) == content


def test_places_of_bytes() -> None:
    content = bytes(BLOCK_BYTES) + np.random.default_rng(1).bytes(BLOCK_BYTES)
    stream = CompressedStream(content, compression._compressor("zlib"))
    header, *pieces = stream.pieces
    second = 3 + len(pieces[0])
    assert int.from_bytes(header, "little") == len(pieces[0]) << 1
    # What does not shrink stays as it is.
    assert int.from_bytes(pieces[1], "little") == BLOCK_BYTES << 1 | 1
    assert stream.length == second + 3 + BLOCK_BYTES
    assert [stream.place(byte) for byte in (0, 5, BLOCK_BYTES - 1)] == [(0, 0), (0, 5), (0, BLOCK_BYTES - 1)]
    assert [stream.place(BLOCK_BYTES), stream.place(BLOCK_BYTES + 7)] == [(second, 0), (second, 7)]
    assert stream.place(2 * BLOCK_BYTES) == (second, BLOCK_BYTES)
    assert CompressedStream(b"", bytes).place(0) == (0, 0)


@pytest.mark.parametrize("kind", [0, 5, 7])
def test_an_index_of_another_layout_is_refused(kind: int) -> None:
    (stripe,) = encode(pa.table({"number": range(20_000)}), "uncompressed")
    with pytest.raises(AcidFormatError, match="row index"):
        compressed(Streams.of(stripe.body, stripe.lengths), [12, kind], "zlib")

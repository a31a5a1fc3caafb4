"""Very long texts: encoded without copies of them in the statistics, and hashed as short ones are."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.acid.bucketing import bucket_hash_codes
from airflow_hive_federation.model.protobuf import all_of, fields_of, number_of
from airflow_hive_federation.model.types import parse_type
from airflow_hive_federation.orc.assembly import AssembledFile, encode, type_messages
from airflow_hive_federation.orc.long_texts import LONG_BYTES, without_long_texts
from airflow_hive_federation.orc.tail import locate_footer

LONG = LONG_BYTES + 1


def written(rows: pa.Table, *hive: str) -> bytes:
    file = io.BytesIO()
    root = parse_type(
        f"struct<{','.join(f'{name}:{kind}' for name, kind in zip('abc', hive, strict=False))}>"
    )
    made = AssembledFile(file, type_messages(root), compression="zlib", calendar=None)
    for stripe in encode(rows, "zlib"):
        made.add(stripe)
    made.finish({})
    return file.getvalue()


def columns(content: bytes) -> list[Any]:
    """Statistics of the file's columns."""
    footer = locate_footer(io.BytesIO(content), "x")[2]
    return [fields_of(column) for column in all_of(footer, 7)]


def test_the_rows_and_their_bounds() -> None:
    texts = ["é" * LONG, None, "b", "\U0010ffff" * LONG]
    row = pa.StructArray.from_arrays([pa.array(texts), pa.array([1, 2, None, 4])], names=["x", "y"])
    rows = pa.table({"a": pa.array([1, 2, 3, 4], pa.int64()), "b": row, "c": pa.array(["k"] * 4)})
    content = written(rows, "bigint", "struct<x:string,y:bigint>", "string")
    assert orc.ORCFile(io.BytesIO(content)).read().to_pylist() == rows.to_pylist()
    statistics = columns(content)
    (text,) = all_of(statistics[3], 4)
    low, high = all_of(fields_of(text), 1)[0], all_of(fields_of(text), 2)[0]
    assert low == b"b"
    # No text of a kilobyte is greater than all that begin so.
    assert high == texts[3].encode()
    assert not all_of(statistics[3], 8)
    assert number_of(fields_of(text), 3) == 2 * sum(len(text.encode()) for text in texts if text)


def test_behind_a_map() -> None:
    entries = pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32()))
    rows = pa.table({"a": entries, "b": ["x" * LONG, "y"], "c": [1, 2]})
    content = written(rows, "map<string,int>", "string", "bigint")
    assert orc.ORCFile(io.BytesIO(content)).read().to_pylist() == rows.to_pylist()
    (text,) = all_of(columns(content)[4], 4)
    assert [len(all_of(fields_of(text), bound)[0]) for bound in (1, 2)] == [1024, 1]


@pytest.mark.parametrize(
    ("text", "high"),
    [("ab", "ab"), ("a" * LONG, "a" * 1023 + "b"), ("\ud7ff" * LONG, "\ud7ff" * 340 + "\ue000")],
)
def test_upper_bounds(text: str, high: str) -> None:
    content = written(pa.table({"a": ["A" * LONG, text]}), "string")
    (text_statistics,) = all_of(columns(content)[1], 4)
    assert all_of(fields_of(text_statistics), 2) == [high.encode()]


def test_chunks_of_short_texts_are_left_as_they_are() -> None:
    short = pa.table({"a": pa.chunked_array([["a"], ["b", None]])})
    assert without_long_texts(short)[0] is short
    mixed = pa.table({"a": pa.chunked_array([["a"], ["x" * LONG, None]])})
    changed, bounds = without_long_texts(mixed)
    assert changed.schema.types == [pa.binary()]
    assert changed.column("a").cast(pa.string()).to_pylist() == mixed.column("a").to_pylist()
    assert bounds[1][0] == b"a"


def test_few_long_values_hash_as_many_do() -> None:
    texts = ["x" * 5, "häß" * 1001, "y" * 70_001, ""]
    kinds = [parse_type("string")]
    few = bucket_hash_codes([pa.array(texts)], kinds, version=2)
    many = bucket_hash_codes([pa.array(texts * 40)], kinds, version=2)
    assert np.array_equal(np.tile(few, 40), many)


def test_the_memory_of_a_long_text_is_some_times_its_length() -> None:
    program = """
import pyarrow as pa
from airflow_hive_federation.orc.assembly import encode
from tests.support.process_memory import peak_memory_bytes as peak
encode(pa.table({"a": ["x"]}), "uncompressed")
rows = pa.table({"a": ["x" * (32 << 20)]})
before = peak()
encode(rows, "uncompressed")
print((peak() - before) / (32 << 20))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) < 8


@pytest.mark.parametrize("long", [b"x" * 70_000, b"\xff\xfe abc" + b"x" * 70_000])
def test_texts_that_are_not_utf_8_have_no_bounds(long: bytes) -> None:
    texts = pa.array([b"\xff\xfe abc", long, None, b"b"], pa.binary()).view(pa.string())
    (stripe,) = encode(pa.table({"a": texts}), "zlib")
    # Nothing of texts or binaries, which older readers would take for a column of nulls.
    statistics = fields_of(all_of(fields_of(stripe.statistics[0]), 1)[1])
    assert {field[0] for field in statistics} <= {1, 10, 11}
    assert number_of(statistics, 1) == 3
    assert all_of(columns(written(pa.table({"a": texts}), "string"))[1], 4) == []


def test_a_character_that_is_cut_is_left_out_of_the_bounds() -> None:
    texts = pa.array(["ä" * 70_000, "b"])
    content = written(pa.table({"a": texts}), "string")
    (strings,) = all_of(columns(content)[1], 4)
    low, high = (all_of(fields_of(strings), number)[0].decode() for number in (1, 2))
    assert (low, high) == ("b", "ä" * 511 + "å")

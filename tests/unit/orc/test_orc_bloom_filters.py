"""Bloom filters of ORC files: which columns get some, and that none lacks a value of its row group."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.protobuf import all_of, fields_of, number_of
from airflow_hive_federation.model.types import parse_type
from airflow_hive_federation.orc.assembly import AssembledFile, encode, type_messages
from airflow_hive_federation.orc.bloom_filters import filtered_columns
from airflow_hive_federation.orc.chunks import inflated
from airflow_hive_federation.orc.properties import (
    NO_FILTERS,
    BloomFilters,
    bloom_filters,
    merged_properties,
    orc_compression,
    requested_properties,
)
from airflow_hive_federation.orc.streams import BLOOM_FILTER, ROW_INDEX, Streams

COLUMNS = [
    ("id", "bigint"),
    ("Name", "string"),
    ("code", "char(3)"),
    ("at", "timestamp"),
    ("price", "decimal(10,2)"),
    ("tags", "array<string>"),
    ("ok", "boolean"),
]


def test_which_columns_get_filters() -> None:
    def of(**properties: str) -> BloomFilters:
        named = {f"orc.bloom.filter.{name}": value for name, value in properties.items()}
        return bloom_filters("d.t", named, COLUMNS)

    assert of() == NO_FILTERS
    assert of(columns="id, NAME") == BloomFilters(columns=("id", "name"))
    assert of(columns="code,at,tags,ok,gone") == NO_FILTERS
    assert of(columns="*", fpp="0.05") == BloomFilters(columns=("id", "name", "price"), fpp=0.05)
    for wrong in ("0", "1", "x", "nan"):
        with pytest.raises(ConfigurationError, match=rf"d\.t: orc\.bloom\.filter\.fpp is {wrong}"):
            of(columns="id", fpp=wrong)


def test_the_codec_is_the_tables_and_that_of_the_request_counts_more() -> None:
    request = requested_properties("3:21:tblprops.orc.compress4:ZSTD26:compactor.mapreduce.job.xx0:1:a1:b")
    assert request == {"orc.compress": "ZSTD"}
    merged = merged_properties({"ORC.compress": "NONE"}, {"orc.compress": "snappy"}, request)
    assert orc_compression("d.t", merged) == "zstd"
    assert orc_compression("d.t", {}) == "zlib"
    assert requested_properties(None) == requested_properties("0:") == {}
    with pytest.raises(ConfigurationError, match="LZO"):
        orc_compression("d.t", {"orc.compress": "LZO"})
    for wrong in ("x", "1:", "1:3:abc", "1:a:b"):
        with pytest.raises(ConfigurationError, match="properties of a compaction"):
            requested_properties(wrong)


def test_delete_events_and_columns_of_others_get_none() -> None:
    filters = BloomFilters(columns=("rowid", "a"))
    names = ["operation", "originalTransaction", "bucket", "rowId", "currentTransaction"]
    row = pa.array([{"s": {"a": 1}, "a": 2}])
    events = pa.table([pa.array([1])] * 5 + [row], names=[*names, "row"])
    assert list(filtered_columns(filters, events)) == [9]
    assert filtered_columns(filters, events.set_column(5, "row", pa.nulls(1, row.type))) == {}
    # A user's own struct of that name.
    assert list(filtered_columns(filters, pa.table({"a": [1], "row": row}))) == [1]


@pytest.mark.parametrize("compression", ["zlib", "uncompressed"])
def test_each_row_group_has_a_filter_with_all_of_its_values(compression: str) -> None:
    """pyarrow writes the same filters for the same columns alone, in files that its reader and ours read."""
    count = 25_000
    numbers = np.random.default_rng(7).integers(-(2**40), 2**40, count)
    rows = pa.table(
        {
            "x": pa.array([[1]] * count),
            "id": numbers,
            "name": pa.array([None if number % 9 == 0 else f"ä{number}" for number in numbers]),
            "z": numbers // 2,
        }
    )
    filters = BloomFilters(columns=("name", "id"), fpp=0.02)
    (stripe,) = encode(rows, compression, filters=filters)
    types = type_messages(parse_type("struct<x:array<bigint>,id:bigint,name:string,z:bigint>"))
    content = io.BytesIO()
    file = AssembledFile(content, types, compression=compression, calendar=1)
    file.add(stripe)
    file.finish({})
    assert orc.ORCFile(content).read().equals(rows)

    codec = compression
    streams = Streams.of(stripe.body, stripe.lengths, lambda footer: inflated(footer, codec))
    by_column = {stream.column: stream for stream in streams.streams if stream.kind == BLOOM_FILTER}
    assert sorted(by_column) == [3, 4]
    # They lie in the stripe's index, behind the row index of their column.
    kinds = [stream.kind for stream in streams.streams]
    assert [kinds[kinds.index(BLOOM_FILTER) - 1], kinds.count(BLOOM_FILTER)] == [ROW_INDEX, 2]
    in_index = [stream for stream in streams.streams if stream.kind in {ROW_INDEX, BLOOM_FILTER}]
    assert in_index == streams.streams[: len(in_index)]
    assert sum(len(stream.content) for stream in in_index) == stripe.lengths[0]
    assert [number_of(fields_of(encoding), 3) for encoding in streams.encodings] == [0, 0, 0, 1, 1, 0]
    by_hash = _filters(inflated(bytes(by_column[3].content), codec))
    assert len(by_hash) == 3
    for group, (functions, bits) in enumerate(by_hash):
        values = [int(number) for number in numbers[group * 10_000 : (group + 1) * 10_000]]
        assert all(_has(bits, functions, _hash_of_long(value)) for value in values)
        others = np.random.default_rng(8).integers(2**41, 2**42, 2_000)
        assert sum(_has(bits, functions, _hash_of_long(int(number))) for number in others) < 200


def _filters(stream: bytes) -> Sequence[tuple[int, bytes]]:
    messages = [fields_of(message) for message in all_of(fields_of(stream), 1)]
    return [(number_of(message, 1), all_of(message, 3)[0]) for message in messages]


def _hash_of_long(value: int) -> int:
    """``BloomFilter.getLongHash`` of Java's ORC, in signed arithmetic of 64 bits."""

    def signed(number: int) -> int:
        return (number + 2**63) % 2**64 - 2**63

    key = signed(~value + (value << 21))
    key ^= key >> 24
    key = signed(signed(key + (key << 3)) + (key << 8))
    key ^= key >> 14
    key = signed(signed(key + (key << 2)) + (key << 4))
    key ^= key >> 28
    return signed(key + (key << 31))


def _has(bits: bytes, functions: int, hashed: int) -> bool:
    """``BloomFilter.testHash``."""
    low, high = ((part + 2**31) % 2**32 - 2**31 for part in (hashed, hashed >> 32))
    for number in range(1, functions + 1):
        combined = (low + number * high + 2**31) % 2**32 - 2**31
        place = (~combined if combined < 0 else combined) % (len(bits) * 8)
        if not bits[place // 8] >> place % 8 & 1:
            return False
    return True

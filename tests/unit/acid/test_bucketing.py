"""Bucket numbers; ``test_bucketing_judge`` compares every type with Hive's own Java."""

from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_hive_federation.acid.bucketing import bucket_hash_codes, bucket_numbers
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.types import parse_type


def test_a_table_that_hive_wrote() -> None:
    numbers = bucket_numbers([pa.array(range(13), pa.int32())], [parse_type("int")], buckets=5, version=2)
    assert numbers.tolist() == [1, 0, 4, 2, 1, 1, 4, 3, 0, 3, 4, 1, 3]


def test_version_1_of_an_int_is_the_int() -> None:
    numbers = bucket_numbers([pa.array([0, 6, -1], pa.int32())], [parse_type("int")], buckets=5, version=1)
    assert numbers.tolist() == [0, 1, (2**31 - 1) % 5]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("string", ["a", None, "日本", "", "bcdefgh"]),
        ("array<int>", [[1], None, [], [2, None], [3, 4, 5]]),
        ("map<string,int>", [[("a", 1)], None, [], [("b", None)], [("c", 3), ("d", 4)]]),
        (
            "struct<a:int,b:string>",
            [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, None, {"a": 2, "b": None}],
        ),
        ("bigint", [1, None, 3, 4, 5]),
        ("boolean", [True, None, False, True, None]),
    ],
)
def test_slices_hash_as_their_rows(version: int, text: str, values: list[object]) -> None:
    arrow = {
        "string": pa.string(),
        "array<int>": pa.list_(pa.int32()),
        "map<string,int>": pa.map_(pa.string(), pa.int32()),
        "struct<a:int,b:string>": pa.struct([("a", pa.int32()), ("b", pa.string())]),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
    }[text]
    column = pa.array(values, arrow)
    codes = bucket_hash_codes([column], [parse_type(text)], version=version)
    for start in range(5):
        part = bucket_hash_codes([column.slice(start, 2)], [parse_type(text)], version=version)
        assert part.tolist() == codes[start : start + 2].tolist()
    assert codes[1] == 0
    assert bucket_hash_codes([column.slice(0, 0)], [parse_type(text)], version=version).tolist() == []


def test_several_chunks() -> None:
    chunked = pa.chunked_array([[1, 2], [3]], pa.int32())
    codes = bucket_hash_codes([pa.array([1, 2, 3], pa.int32())], [parse_type("int")], version=2)
    assert bucket_hash_codes([chunked], [parse_type("int")], version=2).tolist() == codes.tolist()


def test_what_cannot_be() -> None:
    column = pa.array([1], pa.int32())
    with pytest.raises(ConfigurationError, match="bucketing version 3"):
        bucket_hash_codes([column], [parse_type("int")], version=3)
    with pytest.raises(ConfigurationError, match="0 buckets"):
        bucket_numbers([column], [parse_type("int")], buckets=0, version=2)
    with pytest.raises(ConfigurationError, match="of type uniontype<int>"):
        bucket_hash_codes([column], [parse_type("uniontype<int>")], version=2)

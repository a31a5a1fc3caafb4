"""Columns as Hive stores them."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from airflow_hive_federation.model.types import parse_type
from airflow_hive_federation.orc.arrow_columns import arrow_type, conforming, conforms
from airflow_hive_federation.tables.read.arrow_rows import _converted
from airflow_hive_federation.tables.spark_types import spark_type
from airflow_hive_federation.tables.write.columns import stored


def test_char_and_varchar_count_characters() -> None:
    array = pa.array(["a", "äöü日😀", None, ""])
    assert stored(array, parse_type("char(3)"), "UTC").to_pylist() == ["a  ", "äöü", None, "   "]
    assert stored(array, parse_type("varchar(4)"), "UTC").to_pylist() == ["a", "äöü日", None, ""]


def test_timestamps_become_wall_clocks() -> None:
    instant = pa.array([dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC), None])
    shown = stored(
        instant.cast(pa.timestamp("us", "America/New_York")), parse_type("timestamp"), "Europe/Berlin"
    )
    assert shown.to_pylist() == [dt.datetime(2026, 7, 1, 14), None]  # noqa: DTZ001


def test_nested_columns_keep_their_nulls_and_slices() -> None:
    hive = parse_type("array<struct<c:char(2),m:map<string,varchar(1)>>>")
    arrow = pa.list_(pa.struct([("c", pa.string()), ("m", pa.map_(pa.string(), pa.string()))]))
    rows = [
        [{"c": "a", "m": [("k", "xyz")]}, None],
        None,
        [],
        [{"c": None, "m": None}, {"c": "bcd", "m": [("l", None)]}],
    ]
    wanted = [
        [{"c": "a ", "m": [("k", "x")]}, None],
        None,
        [],
        [{"c": None, "m": None}, {"c": "bc", "m": [("l", None)]}],
    ]
    array = pa.array(rows, arrow)
    for start in range(4):
        assert stored(array.slice(start), hive, "UTC").to_pylist() == wanted[start:]


@pytest.mark.parametrize("within", ["{}", "array<{}>", "map<string,{}>", "struct<i:{}>"])
@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("struct<x:int,m:string,y:bigint>", {"x": 1, "m": None, "y": 2}),
        ("struct<Y:bigint,X:int>", {"Y": 2, "X": 1}),
        ("struct<y:int>", {"y": 2}),
    ],
)
def test_changed_structs_keep_the_values_of_their_names(within: str, now: str, expected: object) -> None:
    """The compactor and the reader must agree, or a compaction would change what is read."""

    def nested(value: object) -> object:
        shells = {"array": [value], "map<s": [("k", value)], "struc": {"i": value}}
        return shells.get(within[:5], value)

    older = pa.array(
        [nested({"x": 1, "y": 2}), None], arrow_type(parse_type(within.format("struct<x:int,y:int>")))
    )
    hive = parse_type(within.format(now))
    assert conforms(older.type, arrow_type(hive))
    assert conforming(older, arrow_type(hive)).to_pylist() == [nested(expected), None]
    assert _converted(older, spark_type(hive), "UTC").to_pylist() == [
        nested(expected),
        None,
    ]


def test_columns_of_rows_are_matched_by_position() -> None:
    rows = pa.array(
        [{"a": 1, "s": {"x": 1}}], pa.struct([("a", pa.int32()), ("s", pa.struct([("x", pa.int32())]))])
    )
    wanted = arrow_type(parse_type("struct<s:int,t:struct<w:int,x:int>,u:int>"))
    assert conforms(rows.type, wanted, by_position=True)
    assert conforming(rows, wanted, by_position=True).to_pylist() == [
        {"s": 1, "t": {"w": None, "x": 1}, "u": None}
    ]

"""Columns as Hive stores them."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from airflow_hive_federation.acid.write.columns import stored
from airflow_hive_federation.model.types import parse_type


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
    whole = pa.array(rows, arrow)
    for start in range(4):
        assert stored(whole.slice(start), hive, "UTC").to_pylist() == wanted[start:]

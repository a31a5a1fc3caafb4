"""Timestamps that pyarrow's ORC writer stores wrongly are found, wherever they hide."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from airflow_hive_federation.orc.timestamps import has_unstorable_timestamp

BAD = datetime(1969, 12, 31, 23, 59, 58, 500000)  # noqa: DTZ001 - Hive's timestamps have no zone
GOOD = [datetime(1969, 12, 31, 23, 59, 58), datetime(1970, 1, 1, 0, 0, 0, 500000), None]  # noqa: DTZ001
NS = pa.timestamp("ns")


def wrapped(value: Any) -> list[pa.Table]:
    return [
        pa.table({"a": pa.array([value], NS)}),
        pa.table({"a": pa.array([{"x": 1, "t": value}], pa.struct([("x", pa.int32()), ("t", NS)]))}),
        pa.table({"a": pa.array([[value]], pa.list_(NS))}),
        pa.table({"a": pa.array([[("k", value)]], pa.map_(pa.string(), NS))}),
    ]


@pytest.mark.parametrize("table", wrapped(BAD))
def test_before_1970_with_a_fraction(table: pa.Table) -> None:
    assert has_unstorable_timestamp(table.column("a").chunk(0))


@pytest.mark.parametrize("value", GOOD)
def test_everything_else_passes(value: datetime | None) -> None:
    for table in wrapped(value):
        assert not has_unstorable_timestamp(table.column("a").chunk(0))


@pytest.mark.parametrize("index", range(1, 4))
def test_slices_have_their_own_values_only(index: int) -> None:
    bad, good = (wrapped(value)[index].column("a").chunk(0) for value in (BAD, GOOD[0]))
    both = pa.concat_arrays([good, bad])
    assert [has_unstorable_timestamp(both.slice(place, 1)) for place in range(2)] == [False, True]


@pytest.mark.parametrize(
    ("micros", "unstorable"), [(-1, True), (-1_000_000, False), (1, False), (-62e15 + 5, True)]
)
def test_fractions_before_1970(micros: float, unstorable: bool) -> None:
    array = pa.array([None, int(micros)], pa.timestamp("us"))
    assert has_unstorable_timestamp(array) is unstorable
    nested = pa.array([{"a": [int(micros)]}, None], pa.struct([("a", pa.list_(pa.timestamp("us")))]))
    assert has_unstorable_timestamp(nested) is unstorable

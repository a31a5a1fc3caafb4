"""Timestamps that pyarrow's ORC writer stores wrongly are refused, wherever they hide."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from airflow_hive_federation.acid.orc_timestamps import refuse_unstorable_timestamps
from airflow_hive_federation.errors import AcidFormatError

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
    with pytest.raises(AcidFormatError, match="bucket_00000"):
        refuse_unstorable_timestamps(table, "bucket_00000")


@pytest.mark.parametrize("value", GOOD)
def test_everything_else_passes(value: datetime | None) -> None:
    for table in wrapped(value):
        refuse_unstorable_timestamps(table, "bucket_00000")

"""Rows go to the partition and bucket that Hive chooses."""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_hive_federation.ingest.grouping import grouped, value_texts
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.orc.arrow_columns import arrow_type
from airflow_hive_federation.tables.write.plan import TableLayout

DEFAULT = "__HIVE_DEFAULT_PARTITION__"


def layout(*, buckets: int = 0, keys: tuple[Column, ...] = ()) -> TableLayout:
    return TableLayout(
        database="d",
        table="t",
        location="/t",
        file_format="acid",
        columns=(Column.of("id", "int"),),
        partition_keys=keys,
        bucket_columns=("id",) if buckets else (),
        bucket_count=buckets,
    )


def cut(table: TableLayout, rows: pa.RecordBatch, static: Any) -> list[tuple[Any, int, list[int]]]:
    return [
        (group.values, group.bucket, group.rows().column(0).to_pylist())
        for group in grouped(table, rows, static)
    ]


def test_one_place() -> None:
    rows = pa.RecordBatch.from_pydict({"id": pa.array([3, 1, 2], pa.int32())})
    assert cut(layout(), rows, ()) == [((), 0, [3, 1, 2])]
    assert cut(layout(keys=(Column.of("p", "string"),)), rows, ("x",)) == [(("x",), 0, [3, 1, 2])]


def test_hives_buckets() -> None:
    """The bucket numbers are those of facts that were measured on Hive: ids 0 to 12 in 5 buckets."""
    rows = pa.RecordBatch.from_pydict({"id": pa.array(range(13), pa.int32())})
    groups = cut(layout(buckets=5), rows, ())
    by_id = {row_id: bucket for _, bucket, ids in groups for row_id in ids}
    assert [by_id[number] for number in range(13)] == [1, 0, 4, 2, 1, 1, 4, 3, 0, 3, 4, 1, 3]
    assert all(ids == sorted(ids) for _, _, ids in groups)


def test_dynamic_partitions() -> None:
    keys = (Column.of("p", "string"), Column.of("n", "int"))
    rows = pa.RecordBatch.from_pydict(
        {
            "id": pa.array(range(5), pa.int32()),
            "p": ["b", "a", None, "", "b"],
            "n": pa.array([1, 1, None, 2, 1], pa.int32()),
        }
    )
    groups = {values: ids for values, _, ids in cut(layout(keys=keys), rows, None)}
    assert groups == {("b", "1"): [0, 4], ("a", "1"): [1], (DEFAULT, DEFAULT): [2], (DEFAULT, "2"): [3]}


def test_many_partitions_and_buckets_lose_nothing() -> None:
    count = 50_000
    rows = pa.RecordBatch.from_pydict(
        {"id": pa.array(range(count), pa.int32()), "p": [f"{number % 3001}" for number in range(count)]}
    )
    groups = cut(layout(buckets=4, keys=(Column.of("p", "string"),)), rows, None)
    assert sorted(row_id for _, _, ids in groups for row_id in ids) == list(range(count))
    assert all({row_id % 3001 for row_id in ids} == {int(values[0])} for values, _, ids in groups)
    assert len({(values, bucket) for values, bucket, _ in groups}) == len(groups)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("int", 7, "7"),
        ("boolean", True, "true"),
        ("date", datetime.date(2026, 1, 31), "2026-01-31"),
        ("decimal(10,3)", Decimal("1.500"), "1.5"),
        ("decimal(10,3)", Decimal("100.000"), "100"),
        ("double", 1.0, "1.0"),
        ("double", 1e10, "1.0E10"),
        ("double", 1.5e-5, "1.5E-5"),
        ("float", 0.1, "0.1"),
        ("float", 1.5e10, "1.5E10"),
        ("float", float("nan"), "NaN"),
        ("timestamp", datetime.datetime.fromisoformat("2026-01-31 01:02:03"), "2026-01-31 01:02:03"),
        ("timestamp", datetime.datetime.fromisoformat("2026-01-31 01:02:03.5"), "2026-01-31 01:02:03.5"),
        ("char(4)", "ab  ", "ab"),
        ("varchar(2)", "abc", "ab"),
        ("string", "", DEFAULT),
        ("int", None, DEFAULT),
    ],
)
def test_texts_of_partition_values(kind: str, value: Any, text: str) -> None:
    key = Column.of("p", kind)
    assert value_texts(pa.array([value], arrow_type(key.type)), key).to_pylist() == [text]


@pytest.mark.parametrize("kind", ["varchar(3)", "char(3)"])
def test_the_bucket_is_that_of_the_stored_text(kind: str) -> None:
    table = replace(
        layout(buckets=8), columns=(Column.of("v", kind), Column.of("id", "int")), bucket_columns=("v",)
    )
    rows = pa.RecordBatch.from_pydict(
        {"v": ["abcdef", "abc", "ab  z"], "id": pa.array([1, 2, 3], pa.int32())}
    )
    buckets = {row: group.bucket for group in grouped(table, rows, ()) for row in group.rows()[1].to_pylist()}
    alone = pa.RecordBatch.from_pydict({"v": ["ab"], "id": pa.array([4], pa.int32())})
    assert buckets[1] == buckets[2]
    if kind == "char(3)":
        assert buckets[3] == next(grouped(table, alone, ())).bucket

"""Batches in which rows are handed over to Python workers."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_hive_federation.tables.write.batches import collect_from_workers

_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def _sizes(spark: SparkSession, *columns: str) -> list[int]:
    def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pa.array([batch.num_rows])], names=["size"])

    rows = spark.range(0, 5_000, 1, 1).selectExpr("id", *columns)
    return [row["size"] for row in collect_from_workers(rows, sizes, "size bigint")]


def test_short_rows_are_not_measured(spark: SparkSession) -> None:
    assert _sizes(spark) == _sizes(spark, "string(id) as a", "binary(null) as b") == [2048, 2048, 904]
    assert spark.sparkContext.getLocalProperty(_RECORDS) is None


@pytest.mark.parametrize(
    "column",
    [
        "repeat('x', if(id = 4999, 32769, 1)) as a",
        # Each is short enough, but not together.
        "repeat('x', 20000) as a;unhex(repeat('00', 20000)) as b",
        "array(id) as a",
    ],
)
def test_long_rows_are(spark: SparkSession, column: str) -> None:
    sizes = _sizes(spark, *column.split(";"))
    assert sum(sizes) == 5_000
    assert 2048 not in sizes


def test_limits_that_are_set_hold(spark: SparkSession) -> None:
    spark.conf.set(_RECORDS, "4000")
    try:
        assert _sizes(spark) == [4000, 1000]
    finally:
        spark.conf.unset(_RECORDS)


def test_other_failures_are_raised(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="of the rows"):
        _sizes(spark, "if(id = 7, raise_error('of the rows'), '') as a")

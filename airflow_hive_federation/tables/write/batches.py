"""Passes rows to Spark's Python workers in batches whose size Spark need not measure.

Spark keeps a batch below ``spark.sql.execution.arrow.maxBytesPerBatch``, and therefore measures the memory of
all columns before each row: for twenty columns, this takes a third of Spark's time in a write. A few short
rows cannot reach that limit, so the job runs without it. If a row is long after all, the job fails on it and
runs again with the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from operator import add
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import AtomicType, BinaryType, StringType

_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
# The value that turns the measurement off.
_NO_LIMIT = 2**31 - 1
_BATCH_BYTES = 64 << 20
"""Spark's default limit."""
_BATCH_ROWS = 2048
_ROW_BYTES = _BATCH_BYTES // _BATCH_ROWS
_TOO_LONG = "a row too long for a batch that is not measured"


def collect_from_workers(rows: DataFrame, write: Callable[[Any], Any], schema: str) -> list[Row]:
    """Run a function over rows in Python workers, and collect its results.

    If the session sets one of Spark's two limits of batches, the batches follow them.

    :param write: function as for ``DataFrame.mapInArrow``. It runs a second time on all rows if the texts of
        one row together are longer than 32 KiB.
    :param schema: schema of its results.
    :raises PySparkException: if the job fails; Spark may raise other exceptions too.
    """
    spark = rows.sparkSession
    is_short = _is_short(rows)
    # The method has no default of Spark's own; `getAll` is not in Spark 3.
    follows_settings = any(spark.conf.get(key, None) is not None for key in (_BYTES, _RECORDS))
    if is_short is not None and not follows_settings:
        try:
            with _limits_of_this_thread(spark):
                return rows.where(is_short).mapInArrow(write, schema).collect()
        except (PySparkException, Py4JJavaError) as error:
            if _TOO_LONG not in str(error):
                raise
    return rows.mapInArrow(write, schema).collect()


def _is_short(rows: DataFrame) -> Column | None:
    """Return a condition that fails on long rows; ``None`` if the length of a row is hard to compute."""
    types = {field.name: field.dataType for field in rows.schema}
    if not all(isinstance(data_type, AtomicType) for data_type in types.values()):
        return None
    # Spark would check each sum of whole numbers for an overflow.
    lengths = [
        fn.coalesce(fn.octet_length(name).cast("double"), fn.lit(0.0))
        for name, data_type in types.items()
        if isinstance(data_type, StringType | BinaryType)
    ]
    if not lengths:
        return fn.lit(True)
    failure = fn.raise_error(fn.lit(_TOO_LONG)).cast("boolean")
    return fn.when(reduce(add, lengths) <= _ROW_BYTES, fn.lit(True)).otherwise(failure)


@contextmanager
def _limits_of_this_thread(spark: SparkSession) -> Iterator[None]:
    """Set the limits for this thread's jobs: tasks take settings that the session lacks from their job."""
    context = spark.sparkContext
    limits = {_BYTES: _NO_LIMIT, _RECORDS: _BATCH_ROWS}
    for key, value in limits.items():
        context.setLocalProperty(key, str(value))
    try:
        yield
    finally:
        for key in limits:
            context.setLocalProperty(key, None)  # type: ignore[arg-type]


def cause_of(error: Exception) -> str:
    """Return the cause of a failed job, without the stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # An exception of a Python worker carries its traceback.
    if isinstance(error, Py4JJavaError):
        # The text has py4j's message about its own call, then Java's message, then the stack trace.
        end = next((place for place, line in enumerate(lines) if line.startswith("at ")), len(lines))
        lines = [line.lstrip(": ") for line in lines[1:end]] or lines
    messages = [f"{lines[0]} {lines[-1]}" if lines[0].endswith(":") else lines[0]] if lines else []
    return messages[0][:500] if messages else type(error).__name__

"""Rows handed over to Spark's Python workers, in batches that need not be measured.

Spark keeps a batch below ``spark.sql.execution.arrow.maxBytesPerBatch``, and looks, before each row, how much
memory all its columns take: for twenty columns that is a third of what Spark's side of a write takes. Few
rows that are not long cannot reach that limit, so Spark is told of none. If some row is long after all, the
job fails on it and is run again, measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
# The value with which Spark does not look.
_NO_LIMIT = 2**31 - 1
_BATCH_BYTES = 64 << 20
"""Spark's own limit, unless it is set."""
_BATCH_ROWS = 2048
_ROW_BYTES = _BATCH_BYTES // _BATCH_ROWS
_TOO_LONG = "a row too long for a batch that is not measured"


def collect_from_workers(rows: DataFrame, write: Callable[[Any], Any], schema: str) -> list[Row]:
    """Let Python workers work on rows, and collect what they return.

    Who sets one of Spark's two limits of batches gets batches by these.

    :param write: as ``DataFrame.mapInArrow`` takes it; run a second time on all the rows if texts of one
        together are longer than 32 KiB.
    :param schema: of what it returns.
    :raises PySparkException: the job failed, as it may in other forms that Spark has.
    """
    spark = rows.sparkSession
    is_short = _is_short(rows)
    told: Mapping[str, str] = spark.conf.getAll
    if is_short is not None and not {_BYTES, _RECORDS} & told.keys():
        try:
            with _limits_of_this_thread(spark):
                return rows.where(is_short).mapInArrow(write, schema).collect()
        except (PySparkException, Py4JJavaError) as error:
            if _TOO_LONG not in str(error):
                raise
    return rows.mapInArrow(write, schema).collect()


def _is_short(rows: DataFrame) -> Column | None:
    """Return a condition that fails on long rows; ``None`` if a row's length is not easily known."""
    types = {field.name: field.dataType for field in rows.schema}
    if not all(isinstance(one, AtomicType) for one in types.values()):
        return None
    # Spark would look at each sum of whole numbers whether it fits.
    lengths = [
        fn.coalesce(fn.octet_length(name).cast("double"), fn.lit(0.0))
        for name, one in types.items()
        if isinstance(one, StringType | BinaryType)
    ]
    if not lengths:
        return fn.lit(True)
    failure = fn.raise_error(fn.lit(_TOO_LONG)).cast("boolean")
    return fn.when(reduce(add, lengths) <= _ROW_BYTES, fn.lit(True)).otherwise(failure)


@contextmanager
def _limits_of_this_thread(spark: SparkSession) -> Iterator[None]:
    """Set them for the jobs of this thread: a task takes from its job what the session leaves open."""
    context = spark.sparkContext
    limits = {_BYTES: _NO_LIMIT, _RECORDS: _BATCH_ROWS}
    for key, value in limits.items():
        context.setLocalProperty(key, str(value))
    try:
        yield
    finally:
        for key in limits:
            context.setLocalProperty(key, None)  # type: ignore[arg-type]

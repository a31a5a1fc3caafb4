"""Leaves out partitions and bucket files that cannot hold rows of a predicate.

Predicates on the rows of ACID files cannot be pushed down (see :mod:`.scan`). A reader can leave out only
partitions, and bucket files of tables that are CLUSTERED BY. The remaining partitions and files are an upper
bound; the predicate itself is applied to the rows as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import to_arrow_type

from airflow_hive_federation.acid.bucketing import bucket_numbers
from airflow_hive_federation.acid.names import parse_file
from airflow_hive_federation.acid.snapshot import AcidDirectory, AcidState
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.partitions import DEFAULT_PARTITION
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.tables.spark_internals import (
    arrow_frame,
    cast_or_null,
    column_of,
    conjuncts,
    is_deterministic,
    names_in,
    operands_equal_to,
)
from airflow_hive_federation.tables.spark_types import spark_type

_INDEX = "__index"
_MOST_COMBINATIONS = 1000
_INTEGRAL = (
    spark_types.ByteType,
    spark_types.ShortType,
    spark_types.IntegerType,
    spark_types.LongType,
)


class Predicate:
    """A condition in Spark's SQL on the columns of a table.

    :param text: the condition, e.g. ``day = '2026-01-01' and id in (1, 2)``.
    :raises ConfigurationError: if Spark cannot parse it.
    """

    def __init__(self, spark: SparkSession, text: str) -> None:
        self._spark = spark
        self._text = text
        try:
            self._conjuncts = conjuncts(spark, text)
        except ParseException as error:
            raise ConfigurationError(
                f"{text!r} is no condition of Spark's SQL: {error.getMessage()}",
                remedy="Write it as after WHERE in Spark's SQL.",
            ) from error

    def applied(self, rows: DataFrame) -> DataFrame:
        """Return the rows for which the predicate is true.

        :raises ConfigurationError: if the predicate names a column that the rows do not have.
        """
        try:
            return rows.where(self._text)
        except AnalysisException as error:
            raise ConfigurationError(
                f"{self._text!r} does not fit the table: {error.getMessage()}",
                remedy="Use columns and partition keys of the table.",
            ) from error

    def partitions(self, keys: Sequence[Column], values: Sequence[Sequence[str]]) -> list[int]:
        """Return the partitions that may have such rows.

        :param keys: the table's partition keys.
        :param values: the value texts of each partition.
        :return: positions in ``values``, ascending.
        """
        names = {key.name.lower() for key in keys}
        usable = [
            conjunct for conjunct in self._conjuncts if (columns := names_in(conjunct)) and columns <= names
        ]
        if not usable or not values:
            return list(range(len(values)))
        texts = {
            key.name: pa.array(
                [
                    None if partition_values[index] == DEFAULT_PARTITION else partition_values[index]
                    for partition_values in values
                ],
                pa.string(),
            )
            for index, key in enumerate(keys)
        }
        table = pa.table({_INDEX: pa.array(range(len(values)), pa.int32()), **texts})
        frame = arrow_frame(self._spark, table).select(
            _INDEX, *(fn.col(f"`{key.name}`").cast(spark_type(key.type)).alias(key.name) for key in keys)
        )
        for conjunct in usable:
            narrower = frame.where(column_of(self._spark, conjunct))
            # Spark would evaluate a random condition once for all rows of a partition.
            if is_deterministic(narrower):
                frame = narrower
        return sorted(row[0] for row in frame.select(_INDEX).collect())

    def buckets(self, bucketing: Bucketing) -> frozenset[int] | None:
        """Return the buckets that may have such rows; ``None`` if the predicate does not decide.

        The predicate decides if it contains ``column = value`` or ``column in (value, …)`` for each bucket
        column.
        """
        values = []
        for column in bucketing.columns:
            column_values = self._values(column)
            if column_values is None:
                return None
            values.append(column_values)
        combinations = list(product(*values))
        if not values or len(combinations) > _MOST_COMBINATIONS:
            return None
        if not combinations:
            return frozenset()
        arrays = [
            pa.array(
                [combination[index] for combination in combinations], to_arrow_type(spark_type(column.type))
            )
            for index, column in enumerate(bucketing.columns)
        ]
        kinds = [column.type for column in bucketing.columns]
        numbers = bucket_numbers(arrays, kinds, buckets=bucketing.count, version=bucketing.version)
        return frozenset(int(number) for number in numbers)

    def _values(self, column: Column) -> list[Any] | None:
        for conjunct in self._conjuncts:
            operands = operands_equal_to(conjunct, column.name.lower())
            if operands and not any(names_in(operand) for operand in operands):
                literals = self._spark.range(1).select(
                    *(column_of(self._spark, operand).alias(f"v{i}") for i, operand in enumerate(operands))
                )
                if all(_same_kind(column, field.dataType) for field in literals.schema.fields):
                    return _converted(literals, spark_type(column.type))
        return None


@dataclass(frozen=True, kw_only=True)
class Bucketing:
    """The bucketing of a partition, or of a table without partitions.

    :param columns: the columns of CLUSTERED BY.
    :param count: the number of buckets.
    :param version: the table's ``bucketing_version``.
    """

    columns: tuple[Column, ...]
    count: int
    version: int

    @classmethod
    def of(cls, storage: object, columns: Iterable[Column], version: str) -> Bucketing | None:
        """Return the bucketing of a storage descriptor; ``None`` if rows may lie in any bucket."""
        count = getattr(storage, "numBuckets", None) or 0
        names = [name.lower() for name in getattr(storage, "bucketCols", None) or ()]
        by_name = {column.name.lower(): column for column in columns}
        if count < 1 or not names or not by_name.keys() >= set(names) or version not in {"1", "2"}:
            return None
        return cls(columns=tuple(by_name[name] for name in names), count=count, version=int(version))


def only_buckets(state: AcidState, buckets: Collection[int], count: int) -> AcidState:
    """Return a snapshot without the files of other buckets.

    :param count: the table's number of buckets. A file of a higher bucket was written under another
        bucketing of the table; then no file is left out.
    """
    entries_to_read = [
        *state.originals,
        *(entry for acid_directory in state.directories for entry in acid_directory.files),
    ]
    if any((_bucket(entry) or 0) >= count for entry in entries_to_read):
        return state

    def kept(entries: Iterable[FileEntry]) -> tuple[FileEntry, ...]:
        # A file without a bucket number stays, so that the reader refuses it by name.
        return tuple(entry for entry in entries if (number := _bucket(entry)) is None or number in buckets)

    def narrowed(directory: AcidDirectory) -> AcidDirectory:
        return replace(directory, files=kept(directory.files))

    return replace(
        state,
        base=None if state.base is None else narrowed(state.base),
        originals=kept(state.originals),
        deltas=tuple(narrowed(delta) for delta in state.deltas),
        delete_deltas=tuple(narrowed(delta) for delta in state.delete_deltas),
    )


def _bucket(entry: FileEntry) -> int | None:
    return parse_file(entry.path.rpartition("/")[2]).bucket


def _same_kind(column: Column, literal: spark_types.DataType) -> bool:
    # If Spark converts the column for the comparison, several stored values may equal one literal.
    wanted = spark_type(column.type)
    if isinstance(wanted, _INTEGRAL):
        return isinstance(literal, _INTEGRAL)
    if isinstance(wanted, spark_types.DateType):
        return isinstance(literal, (spark_types.DateType, spark_types.StringType))
    return column.type.name in {"string", "varchar"} and isinstance(literal, spark_types.StringType)


def _converted(literals: DataFrame, wanted: spark_types.DataType) -> list[object]:
    spark = literals.sparkSession
    row = literals.select(*(cast_or_null(spark, fn.col(name), wanted) for name in literals.columns)).first()
    # Null, and literals that do not fit the type, equal no row.
    return sorted({value for value in row or () if value is not None})

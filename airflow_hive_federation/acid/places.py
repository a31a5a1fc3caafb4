"""Directories of a table, the values of its partitions, and how columns are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql import types as spark_types

from airflow_hive_federation.acid import scan
from airflow_hive_federation.acid.snapshot import AcidDirectory, AcidState
from airflow_hive_federation.acid.spark_types import spark_type
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.partitions import DEFAULT_PARTITION
from airflow_hive_federation.model.types import Column

PLACE = "__acid_place"
_PARTITION = "__acid_partition_"


@dataclass(frozen=True, kw_only=True)
class PartitionState:
    """One directory to read: a partition, or the table itself.

    :param location: URI of the directory.
    :param state: its snapshot.
    :param values: texts of the partition's values, as the metastore has them.
    """

    location: str
    state: AcidState
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """A directory with its location as Spark names it."""

    path: str
    uri: str
    state: AcidState
    values: tuple[str, ...]

    @classmethod
    def of(cls, spark: SparkSession, directory: PartitionState) -> Place:
        path, uri = scan.qualified(spark, directory.location)
        return cls(path, uri, directory.state, directory.values)

    def split(self, says: Callable[[AcidDirectory | None, FileEntry], bool]) -> tuple[Place, Place]:
        """Split the insert files into two places: those of which ``says`` says yes, and the others.

        :param says: told the directory (``None`` for an original file) and the file.
        """
        return self._only(says, True), self._only(says, False)

    def _only(self, says: Callable[[AcidDirectory | None, FileEntry], bool], answer: bool) -> Place:
        state = self.state

        def narrowed(directory: AcidDirectory) -> AcidDirectory:
            files = tuple(entry for entry in directory.files if says(directory, entry) is answer)
            return replace(directory, files=files)

        narrow = replace(
            state,
            base=None if state.base is None else narrowed(state.base),
            originals=tuple(entry for entry in state.originals if says(None, entry) is answer),
            deltas=tuple(narrowed(one) for one in state.deltas),
        )
        return replace(self, state=narrow)

    def full(self, entry: FileEntry) -> str:
        return f"{self.path}/{entry.path}"


def with_partition_values(
    spark: SparkSession, rows: DataFrame, places: Sequence[Place], keys: Sequence[Column]
) -> DataFrame:
    """Add the partition keys, typed, and the index of the place.

    :param rows: rows that know their directory, or come from one place.
    """
    texts = [tuple(_value_or_none(value) for value in place.values) for place in places]
    if len(places) == 1:
        values = {
            key.name: fn.lit(text).cast(spark_type(key.type))
            for key, text in zip(keys, texts[0], strict=True)
        }
        return rows.withColumns({**values, PLACE: fn.lit(0)})
    names = [f"{_PARTITION}{index}" for index in range(len(keys))]
    columns = {
        scan.DIRECTORY: pa.array([place.uri for place in places], pa.string()),
        PLACE: pa.array(range(len(places)), pa.int32()),
        **{name: pa.array([text[index] for text in texts], pa.string()) for index, name in enumerate(names)},
    }
    typed = spark.createDataFrame(pa.table(columns)).select(
        scan.DIRECTORY,
        PLACE,
        *(
            fn.col(name).cast(spark_type(key.type)).alias(key.name)
            for name, key in zip(names, keys, strict=True)
        ),
    )
    return rows.join(fn.broadcast(typed), scan.DIRECTORY)


def _value_or_none(value: str) -> str | None:
    return None if value == DEFAULT_PARTITION else value


def shown(column: Column) -> SparkColumn:
    """Select a column as Hive shows it."""
    value = fn.col(f"`{column.name}`")
    # ORC's readers strip a char's padding; Hive shows it.
    return (
        fn.rpad(value, column.type.arguments[0], " ").alias(column.name)
        if column.type.name == "char"
        else value
    )


def no_rows(spark: SparkSession, schema: spark_types.StructType) -> DataFrame:
    """Make an empty frame of the columns that scans have."""
    rows = spark.createDataFrame([], schema)
    return rows.select(
        *schema.names,
        fn.lit(None).cast("bigint").alias(scan.WRITE_ID),
        fn.lit(None).cast("int").alias(scan.BUCKET),
        fn.lit(None).cast("bigint").alias(scan.ROW_ID),
        fn.lit(None).cast("string").alias(scan.DIRECTORY),
    )

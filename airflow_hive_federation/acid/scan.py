"""Spark scans of the files of an ACID table.

**The six-column trap.** ORC recognises an ACID file by the names of its six columns and then ignores a reader
schema that asks for fewer: a scan that loses one of them to Spark's column pruning fails with
``ArrayIndexOutOfBoundsException``, and a predicate that Spark pushes down is looked up among the columns of
the *user's* row, where a column of that name silently decides which rows are read. So every scan carries a
filter (:func:`keep`) that is always true, uses all six columns, and is neither pushed down nor simplified
away.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql import types as spark_types

from airflow_hive_federation.acid.arrow_rows import RowFile, count_rows, rows_of_file
from airflow_hive_federation.acid.rewrite import ACID_COLUMNS
from airflow_hive_federation.errors import AcidFormatError, FileVanishedError, HiveFederationError
from airflow_hive_federation.model.types import parse_type
from airflow_hive_federation.model.write_ids import ValidWriteIds

T = TypeVar("T")
WRITE_ID, BUCKET, ROW_ID, DIRECTORY = "__acid_write_id", "__acid_bucket", "__acid_row_id", "__acid_directory"
KEYS = (WRITE_ID, BUCKET, ROW_ID)
_KEY_FIELDS = [
    spark_types.StructField(WRITE_ID, spark_types.LongType()),
    spark_types.StructField(BUCKET, spark_types.IntegerType()),
    spark_types.StructField(ROW_ID, spark_types.LongType()),
    spark_types.StructField(DIRECTORY, spark_types.StringType()),
]
_INSERT, _DELETE = "coalesce(operation, 0) < 2", "coalesce(operation, 2) = 2"
_GLOB_CHARACTERS = re.compile(r"([\[\]{}*?\\])")
_EMPTY_AUTHORITY = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):///")
_BY_POSITION = {"orc.force.positional.evolution": "true"}
# Positions count within what Spark asks for: nothing of the row may be pruned then.
_WHOLE_ROW = "size(array(row)) = 1"
_CHEAP = (spark_types.BooleanType, spark_types.NumericType, spark_types.DateType)
# Broadcast by rows: deletes compress so well that their bytes say nothing (400,000 in 6 KB).
_BROADCAST_ROWS = 2_000_000
_FOOTER_THREADS = 8


@dataclass(frozen=True, kw_only=True)
class Scan:
    """Files to read together.

    :param paths: files, as texts of qualified Hadoop paths.
    :param filtered: rows must be filtered by their write id.
    """

    paths: tuple[str, ...]
    filtered: bool


def acid_rows(
    spark: SparkSession, scan: Scan, schema: spark_types.StructType, write_ids: ValidWriteIds
) -> DataFrame:
    """Read insert events: the row's columns and the four columns of its identity.

    :param schema: the row's columns.
    """
    by_position = _were_renamed(spark, scan.paths, schema)
    frame = _read_acid(spark, scan.paths, schema, by_position=by_position).where(keep(schema, _INSERT))
    if by_position:
        frame = frame.where(_WHOLE_ROW)
    if scan.filtered:
        frame = frame.where(_is_valid(write_ids))
    columns = [fn.col("row").getField(name).alias(name) for name in schema.names]
    return frame.select(*columns, *_keys())


def deleted_keys(
    spark: SparkSession, scans: Iterable[Scan], schema: spark_types.StructType, write_ids: ValidWriteIds
) -> DataFrame:
    """Read delete events: the identities of the rows they delete."""
    frames = []
    for scan in scans:
        frame = _read_acid(spark, scan.paths, schema).where(keep(schema, _DELETE))
        frames.append((frame.where(_is_valid(write_ids)) if scan.filtered else frame).select(*_keys()))
    return union(frames)


def without(rows: DataFrame, deleted: DataFrame, *, at_most: int, one_directory: bool) -> DataFrame:
    """Leave out the rows whose identity is among the deleted ones.

    :param at_most: how many deletes there are, or more.
    :param one_directory: all rows and deletes are of one directory.
    """
    hinted = fn.broadcast(deleted) if at_most <= _BROADCAST_ROWS else deleted.hint("merge")
    # The directory belongs to the key: writers number the rows of every partition from 0.
    keys = list(KEYS) if one_directory else [*KEYS, DIRECTORY]
    return rows.join(hinted.select(keys), keys, "left_anti").select(*rows.columns)


def plain_rows(
    spark: SparkSession, paths: Sequence[str], schema: spark_types.StructType, file_format: str
) -> DataFrame:
    """Read files without ACID columns, whose rows need no identity."""
    options = _BY_POSITION if file_format == "orc" else {}
    frame = spark.read.schema(schema).options(**options).format(file_format).load(escaped(paths))
    nulls = [fn.lit(None).cast(field.dataType).alias(field.name) for field in _KEY_FIELDS[:3]]
    return frame.select(*schema.names, *nulls, _directory().alias(DIRECTORY))


def arrow_rows(spark: SparkSession, files: Sequence[RowFile], schema: spark_types.StructType) -> DataFrame:
    """Read files that Spark's reader cannot: only a head of the file counts, or rows are known by position.

    A file is held in memory as a whole.
    """
    by_path = {file.path: file for file in files}
    result = spark_types.StructType([*schema.fields, *_KEY_FIELDS])
    # Spark's own ORC reader turns wall clocks into instants by the JVM's zone.
    zone = _jvm(spark).java.util.TimeZone.getDefault().getID()

    def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, content in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                yield from rows_of_file(by_path[path], content.as_buffer(), result, zone)

    return _contents(spark, [file.path for file in files]).mapInArrow(convert, result)


def row_counts(spark: SparkSession, paths: Sequence[str]) -> dict[str, int]:
    """Count the rows of ORC files by their footers."""

    def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            names = batch.column(0)
            counts = [
                count_rows(path.as_py(), content.as_buffer()) for path, content in zip(*batch, strict=True)
            ]
            yield pa.record_batch({"path": names, "rows": pa.array(counts, pa.int64())})

    counted = _contents(spark, paths).mapInArrow(convert, "path string, rows bigint").collect()
    return {row["path"]: row["rows"] for row in counted}


def keep(schema: spark_types.StructType, operation: str) -> SparkColumn:
    """Build the filter every scan of ACID files needs; see the module's text."""
    conditions = [fn.expr(operation)]
    for name in ("originalTransaction", "bucket", "rowId", "currentTransaction"):
        conditions.append(fn.expr(f"coalesce({name}, 0) >= 0"))
    cheapest = next((f for f in schema.fields if isinstance(f.dataType, _CHEAP)), schema.fields[0])
    value = fn.col("row").getField(cheapest.name)
    if isinstance(cheapest.dataType, (spark_types.MapType, spark_types.ArrayType)):
        conditions.append(fn.coalesce(fn.size(value), fn.lit(0)) >= -1)
    elif isinstance(cheapest.dataType, spark_types.StructType):
        conditions.append(fn.coalesce(fn.length(value.cast("string")), fn.lit(0)) >= 0)
    else:
        conditions.append(fn.hash(value) >= fn.lit(-(2**31)))
    condition = conditions[0]
    for other in conditions[1:]:
        condition &= other
    return condition


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Put frames of the same columns one below the other."""
    result = frames[0]
    for frame in frames[1:]:
        result = result.unionAll(frame)
    return result


def qualified(spark: SparkSession, location: str) -> tuple[str, str]:
    """Return a location as the text of a qualified Hadoop path, and as ``_metadata.file_path`` has it."""
    jvm = _jvm(spark)
    path = jvm.org.apache.hadoop.fs.Path(location)
    context = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
    path = path.getFileSystem(context).makeQualified(path)
    # A URI without authority comes as scheme:///x or scheme:/x, depending on how it was made.
    return path.toString(), _EMPTY_AUTHORITY.sub(r"\1:/", path.toUri().toString())


def _were_renamed(spark: SparkSession, paths: Sequence[str], schema: spark_types.StructType) -> bool:
    """Whether some file was written when the columns had other names.

    Hive matches the columns of ORC files by position. By name is the same as long as every file's columns are
    the first of the table's; then Spark may leave out columns that nobody asks for.
    """
    names = [name.lower() for name in schema.names]

    def differs(reader: Any, path: str) -> bool:
        # One call, where walking the schema takes one for every name.
        found = _row_names(reader.getSchema().toString())
        if found is None:
            raise AcidFormatError(f"{path} has not the columns of an ACID file.", path=path)
        return list(found) != names[: len(found)]

    # The files of one directory are of one statement or one compaction.
    one_each = {path.rpartition("/")[0]: path for path in paths}
    return any(_footers(spark, list(one_each.values()), differs))


def count_by_footers(spark: SparkSession, paths: Sequence[str]) -> int:
    """Count the events in ACID files, visible or not."""
    return sum(_footers(spark, paths, lambda reader, _: int(reader.getNumberOfRows())))


def _footers(spark: SparkSession, paths: Sequence[str], ask: Callable[[Any, str], T]) -> list[T]:
    configuration = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
    jvm = _jvm(spark)
    orc = jvm.org.apache.orc.OrcFile

    def answer(path: str) -> T:
        try:
            reader = orc.createReader(jvm.org.apache.hadoop.fs.Path(path), orc.readerOptions(configuration))
        except Py4JJavaError as error:
            raise _unreadable(path, error) from error
        try:
            return ask(reader, path)
        finally:
            reader.close()

    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        return list(pool.map(answer, paths))


@lru_cache(maxsize=256)
def _row_names(schema: str) -> tuple[str, ...] | None:
    fields = parse_type(schema).fields
    if tuple(field.name for field in fields) != ACID_COLUMNS:
        return None
    return tuple(field.name.lower() for field in fields[-1].type.fields)


def _unreadable(path: str, error: Py4JJavaError) -> HiveFederationError:
    said = str(error.java_exception.toString())
    if "FileNotFoundException" in said:
        return FileVanishedError(
            f"{path} is gone.",
            remedy="Read again with a new snapshot: it was cleaned up, or the table was dropped.",
            path=path,
        )
    return AcidFormatError(f"{path} cannot be read as ORC: {said}.", path=path)


def _read_acid(
    spark: SparkSession, paths: Sequence[str], schema: spark_types.StructType, *, by_position: bool = False
) -> DataFrame:
    acid = spark_types.StructType(
        [
            spark_types.StructField("operation", spark_types.IntegerType()),
            spark_types.StructField("originalTransaction", spark_types.LongType()),
            spark_types.StructField("bucket", spark_types.IntegerType()),
            spark_types.StructField("rowId", spark_types.LongType()),
            spark_types.StructField("currentTransaction", spark_types.LongType()),
            spark_types.StructField("row", schema),
        ]
    )
    options = _BY_POSITION if by_position else {}
    return spark.read.schema(acid).options(**options).orc(escaped(paths))


def _keys() -> list[SparkColumn]:
    # coalesce(), because a join or a user's condition on a bare column would be pushed down: "bucket is not
    # null" would then be asked of the user's column of that name, which is null in every delete event.
    return [
        fn.coalesce(fn.col("originalTransaction"), fn.lit(0).cast("bigint")).alias(WRITE_ID),
        fn.coalesce(fn.col("bucket"), fn.lit(0)).alias(BUCKET),
        fn.coalesce(fn.col("rowId"), fn.lit(0).cast("bigint")).alias(ROW_ID),
        _directory().alias(DIRECTORY),
    ]


def _directory() -> SparkColumn:
    # The partition's directory: two levels above a bucket file. Cheaper than a regular expression per row.
    path = "_metadata.file_path"
    return fn.expr(f"left({path}, length({path}) - length(substring_index({path}, '/', -2)) - 1)")


def _is_valid(write_ids: ValidWriteIds) -> SparkColumn:
    # coalesce() keeps Spark from pushing the condition down.
    current = fn.coalesce(fn.col("currentTransaction"), fn.lit(0))
    condition = current <= fn.lit(write_ids.high_watermark)
    if write_ids.invalid_ids:
        condition &= ~current.isin(list(write_ids.invalid_ids))
    return condition


def _contents(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    return spark.read.format("binaryFile").load(escaped(paths)).select("path", "content")


def escaped(paths: Sequence[str]) -> list[str]:
    """Escape what Spark takes for wildcards in paths."""
    # (Its internal option against that lists other paths twice.)
    return [_GLOB_CHARACTERS.sub(r"\\\1", path) for path in paths]


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm  # noqa: SLF001

"""Scans the files of an ACID table with Spark.

**The six-column trap.** ORC recognises an ACID file by the names of its six columns and then ignores a reader
schema with fewer columns: a scan that loses one of them to Spark's column pruning fails with
``ArrayIndexOutOfBoundsException``. Every scan by name therefore carries a filter (:func:`keep`) that is
always true, uses all six columns, and is neither pushed down nor simplified away.

**Scans by position** (``orc.force.positional.evolution``). Spark passes ORC all six names and leaves out the
unused columns. The row's columns in the schema must then begin with the row's first column and have no gap,
or ORC would read one column for another. Every column is therefore taken from an expression over the whole
row (:data:`_WHOLE`), which Spark's pruning of nested columns does not look into.

**The trap of pushed conditions.** ORC evaluates a condition that Spark pushes down on the columns of the
*user's* row, where a column of the same name silently decides which rows are read: ``bucket > 0``, or
``row.id > 0`` if the user has a column ``row`` with a field ``id``. Conditions on the first five columns are
hidden in ``coalesce``; in scans by position, conditions on the row are hidden too.

**Few steps.** Spark takes some milliseconds per DataFrame derived from another, and Python makes one call of
the JVM per item of a list. A scan therefore returns its columns as texts, which the caller puts into one
selection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql import types as spark_types

from airflow_hive_federation.acid.names import is_acid_directory
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.tables import spark_internals
from airflow_hive_federation.tables.read.ambiguous_times import checked, has_timestamps
from airflow_hive_federation.tables.read.arrow_rows import RowFile, rows_of_file
from airflow_hive_federation.tables.read.footers import row_columns

WRITE_ID, BUCKET, ROW_ID = "__acid_write_id", "__acid_bucket", "__acid_row_id"
FILE = "__acid_file"
"""Column with the origin of a row: the URI of its file, or of its partition's directory."""
PLACE = "__acid_place"
PARTITION = "__acid_partition"
"""Column with the value texts of a row's partition, as in the metastore: an array."""
KEYS = (WRITE_ID, BUCKET, ROW_ID)
# Spark would push down a join or a user's condition on a bare column: ORC would then evaluate "bucket is not
# null" on the user's column of that name, which is null in every delete event. coalesce() prevents that.
_KEY_TEXTS = {
    WRITE_ID: "coalesce(originalTransaction, 0L)",
    BUCKET: "coalesce(bucket, 0)",
    ROW_ID: "coalesce(rowId, 0L)",
    FILE: "_metadata.file_path",
}
_HASHED, _DELETED_HASHED = "__acid_hashed", "__acid_deleted_hashed"
_KEY_FIELDS = [
    spark_types.StructField(WRITE_ID, spark_types.LongType()),
    spark_types.StructField(BUCKET, spark_types.IntegerType()),
    spark_types.StructField(ROW_ID, spark_types.LongType()),
    spark_types.StructField(FILE, spark_types.StringType()),
]
OURS = "hive.federation.reader"
"""A reader option that marks our own scans; see :mod:`.guard`."""
# A missing or broken file always fails the scan, whatever the session's settings are.
STRICT = {OURS: "true", "ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
_INSERT, _DELETE = 0, 2
_GLOB_CHARACTERS = re.compile(r"([\[\]{}*?\\])")
_EMPTY_AUTHORITY = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):///")
_PLAIN_LOCATION = re.compile(
    r"(?:(?P<file>file:)(?://(?=/))?|(?P<store>[a-z][a-z0-9]*://[A-Za-z0-9.:-]+))"
    r"(?P<path>(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9_.=-]+)+)"
)
_BY_POSITION = {"orc.force.positional.evolution": "true"}
# Only delete events have no row. raise_error keeps Spark from simplifying the expression, after which Spark
# would prune columns of the row.
_WHOLE = "coalesce(`row`, raise_error('A file of inserts of a Hive ACID table has an event without a row.'))"
_NEUTRAL = "__acid_column_"
_CHEAP = (spark_types.BooleanType, spark_types.NumericType, spark_types.DateType)
# The number of rows decides on a broadcast: deletes compress so well (400,000 in 6 KB) that their size in
# bytes cannot.
_BROADCAST_ROWS = 2_000_000
_OF_A_STATEMENT = re.compile(r"delta_(\d+)_\1_\d+", re.ASCII)
"""A name with a statement's number, which all partitions of the statement have, and no compaction gives."""


@dataclass(frozen=True, kw_only=True)
class Scan:
    """A group of files that one scan reads.

    :param paths: files, as texts of qualified Hadoop paths.
    :param filtered: the rows must be filtered by their write id.
    """

    paths: tuple[str, ...]
    filtered: bool


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows of a frame, with expressions for the columns to select from them.

    :param columns: expressions over the frame in Spark's SQL, by column name.
    """

    frame: DataFrame
    columns: Mapping[str, str]

    @classmethod
    def named(cls, frame: DataFrame, names: Iterable[str]) -> Rows:
        """Return rows with columns of a frame as they are."""
        return cls(frame=frame, columns={name: quoted(name) for name in names})

    def made(self) -> DataFrame:
        """Return a frame with exactly these columns."""
        return self.frame.selectExpr(*(f"{text} as {quoted(name)}" for name, text in self.columns.items()))


def acid_rows(
    spark: SparkSession,
    scan: Scan,
    schema: spark_types.StructType,
    write_ids: ValidWriteIds,
    *,
    by_position: bool,
) -> Rows:
    """Read the insert events of files: the row's columns and the four columns of its identity.

    :param schema: the row's columns; by position, the first columns may be enough.
    :param by_position: match columns by position, as Hive does, and read all of them. By name, only the used
        columns are read; see :func:`names_fit`.
    """
    shown = schema.names
    if by_position:
        fields = [
            spark_types.StructField(f"{_NEUTRAL}{index}", field.dataType)
            for index, field in enumerate(schema.fields)
        ]
        schema = spark_types.StructType(fields)
    conditions = [] if by_position else [keep(schema, _INSERT)]
    if scan.filtered:
        conditions.append(_is_valid(write_ids))
    frame = _read_acid(spark, scan.paths, schema, by_position=by_position)
    if conditions:
        frame = frame.where(" and ".join(conditions))
    row = _WHOLE if by_position else "`row`"
    pairs = zip(shown, schema.names, strict=True)
    columns = {column: f"{row}.{quoted(name)}" for column, name in pairs}
    return Rows(frame=frame, columns=_checked(spark, columns, schema) | _KEY_TEXTS)


def deleted_keys(
    spark: SparkSession, scans: Iterable[Scan], schema: spark_types.StructType, write_ids: ValidWriteIds
) -> DataFrame:
    """Read the delete events of files: the identities of the rows that they delete."""
    frames = []
    for scan in scans:
        conditions = [keep(schema, _DELETE), *([_is_valid(write_ids)] if scan.filtered else [])]
        frame = _read_acid(spark, scan.paths, schema).where(" and ".join(conditions))
        frames.append(Rows(frame=frame, columns=_KEY_TEXTS).made())
    return union(frames)


def without(rows: DataFrame, deleted: DataFrame, *, at_most: int) -> DataFrame:
    """Remove the rows with a deleted identity from a frame, by a join.

    :param rows: rows with the columns of an identity, and the index of the place.
    :param deleted: deletes with the same columns.
    :param at_most: upper bound of the number of deletes.
    """
    # The place belongs to the key: writers number the rows of every partition from 0.
    keys = [*KEYS, PLACE]
    # A join by one number is far faster than by four columns, which are compared only if the number is equal.
    theirs = deleted.select(
        _hashed().alias(_DELETED_HASHED), *(fn.col(key).alias(f"{key}_d") for key in keys)
    )
    hinted = fn.broadcast(theirs) if at_most <= _BROADCAST_ROWS else theirs.hint("merge")
    condition = fn.col(_HASHED) == fn.col(_DELETED_HASHED)
    for key in keys:
        # Spark would make an equality part of the join key.
        condition &= (fn.col(key) <= fn.col(f"{key}_d")) & (fn.col(key) >= fn.col(f"{key}_d"))
    return rows.withColumn(_HASHED, _hashed()).join(hinted, condition, "left_anti").select(*rows.columns)


def _hashed() -> SparkColumn:
    numbers = fn.shiftleft(WRITE_ID, 40).bitwiseXOR(fn.shiftleft(fn.col(BUCKET).cast("bigint"), 20))
    places = fn.shiftleft(fn.col(PLACE).cast("bigint"), 30)
    return numbers.bitwiseXOR(places).bitwiseXOR(fn.col(ROW_ID))


def plain_rows(
    spark: SparkSession,
    paths: Sequence[str],
    schema: spark_types.StructType,
    file_format: str,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read files without ACID columns, whose rows need no identity.

    :param options: further options for Spark's reader.
    """
    reader_options = {**STRICT, **(_BY_POSITION if file_format == "orc" else {}), **(options or {})}
    frame = spark.read.schema(schema).options(**reader_options).format(file_format).load(escaped(paths))
    columns = {name: quoted(name) for name in schema.names}
    if file_format == "orc":
        columns = _checked(spark, columns, schema)
    nulls = {field.name: f"cast(null as {field.dataType.simpleString()})" for field in _KEY_FIELDS[:3]}
    return Rows(frame=frame, columns=columns | nulls | {FILE: _KEY_TEXTS[FILE]}).made()


def arrow_rows(spark: SparkSession, files: Sequence[RowFile], schema: spark_types.StructType) -> DataFrame:
    """Read files with pyarrow that Spark's reader cannot read.

    Only the head of such a file counts, or its rows have their identity by position. A file is held in memory
    as a whole.
    """
    by_path = {file.path: file for file in files}
    result = spark_types.StructType([*schema.fields, *_KEY_FIELDS])
    zone = spark_internals.time_zone(spark)

    def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, content in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                yield from rows_of_file(by_path[path], content.as_buffer(), result, zone)

    return _contents(spark, [file.path for file in files]).mapInArrow(convert, result)


def keep(schema: spark_types.StructType, operation: int) -> str:
    """Return the filter, in Spark's SQL, that every scan of ACID files by name needs; see the module.

    ``operation`` is never null, so that the other columns are never evaluated; but Spark does not know that,
    and reads all six columns.
    """
    cheapest = next((f for f in schema.fields if isinstance(f.dataType, _CHEAP)), schema.fields[0])
    value = f"cast(`row`.{quoted(cheapest.name)} is null as bigint)"
    operand = f"coalesce(operation, originalTransaction, bucket, rowId, currentTransaction, {value})"
    # Updates among the inserts of Hive 2 are refused by the files' footers: a filter would cost time.
    return f"{operand} < {_DELETE}" if operation == _INSERT else f"{operand} = {operation}"


def quoted(name: str) -> str:
    """Quote a column's name for Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the union of frames with the same columns."""
    result = frames[0]
    for frame in frames[1:]:
        result = result.unionAll(frame)
    return result


def qualified(spark: SparkSession, location: str) -> tuple[str, str]:
    """Return a location as a qualified Hadoop path, and in the form of ``_metadata.file_path``."""
    # Most locations are qualified and have nothing to escape, so that no call of the JVM is necessary.
    if plain := _PLAIN_LOCATION.fullmatch(location):
        path = f"{plain['file'] or plain['store']}{plain['path']}"
        return path, path
    path, uri = spark_internals.qualified_path(spark, location)
    # A URI without authority is scheme:///x or scheme:/x, depending on how it was made.
    return path, _EMPTY_AUTHORITY.sub(r"\1:/", uri)


def names_fit(paths: Sequence[str], schema: spark_types.StructType, options: StorageOptions | None) -> bool:
    """Return whether matching columns by name equals matching by position, which is Hive's rule for ORC.

    The two are equal if the columns of every file are the first columns of the table. No column may have the
    name ``row``, because ORC would take a condition on its field for one on the row.

    :raises FileVanishedError: if a file is gone.
    :raises AcidFormatError: if a file cannot be read.
    """
    names = tuple(name.lower() for name in schema.names)
    file_per_writer = {_written_by(path): path for path in paths}
    of_files = row_columns(list(file_per_writer.values()), options)
    return "row" not in names and all(columns == names[: len(columns)] for columns in of_files)


def _written_by(path: str) -> str:
    """Return a text that two files have in common only if one statement, or one compaction, wrote both."""
    parts = path.split("/")
    for depth in range(len(parts) - 1, 0, -1):
        name = parts[depth - 1]
        if is_acid_directory(name):
            # Partitions are compacted at different times, between which columns may be renamed. A replica and
            # Hive 3 name a compacted directory as Hive 4 names one of an overwrite or of streaming.
            return name if _OF_A_STATEMENT.fullmatch(name) else "/".join(parts[:depth])
    return path


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
    options = {**STRICT, **(_BY_POSITION if by_position else {})}
    return spark.read.schema(acid).options(**options).orc(spark_internals.java_texts(spark, escaped(paths)))


def _checked(
    spark: SparkSession, columns: Mapping[str, str], schema: spark_types.StructType
) -> dict[str, str]:
    """Make columns of ORC files fail on timestamps that Java's reader mistakes: :mod:`.ambiguous_times`."""
    if not has_timestamps(schema):
        return dict(columns)
    zone = spark_internals.time_zone(spark)
    offset_s = spark_internals.standard_offset_s(spark, zone)
    return {
        name: checked(text, field.dataType, zone, offset_s, column=name)
        for (name, text), field in zip(columns.items(), schema.fields, strict=True)
    }


def _is_valid(write_ids: ValidWriteIds) -> str:
    # coalesce() keeps Spark from pushing the condition down.
    current = "coalesce(currentTransaction, 0L)"
    condition = f"{current} <= {write_ids.high_watermark}L"
    if write_ids.invalid_ids:
        condition += (
            f" and {current} not in ({', '.join(f'{write_id}L' for write_id in write_ids.invalid_ids)})"
        )
    return condition


def _contents(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    return spark.read.format("binaryFile").options(**STRICT).load(escaped(paths)).select("path", "content")


def escaped(paths: Sequence[str]) -> list[str]:
    """Escape the wildcards of Spark in paths."""
    # (Spark's internal option against wildcards lists other paths twice.)
    return [_GLOB_CHARACTERS.sub(r"\\\1", path) for path in paths]


def at_same_clock(instant: SparkColumn, theirs: str, ours: str) -> SparkColumn:
    """Return the instant at which our clock shows the time that the other clock shows at an instant."""
    return instant if theirs == ours else fn.to_utc_timestamp(fn.from_utc_timestamp(instant, theirs), ours)

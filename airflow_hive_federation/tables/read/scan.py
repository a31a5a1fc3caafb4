"""Spark scans of the files of an ACID table.

**The six-column trap.** ORC recognises an ACID file by the names of its six columns and then ignores a reader
schema that asks for fewer: a scan that loses one of them to Spark's column pruning fails with
``ArrayIndexOutOfBoundsException``. So every scan by name carries a filter (:func:`keep`) that is always true,
uses all six columns, and is neither pushed down nor simplified away.

**By position** (``orc.force.positional.evolution``) Spark hands ORC all six names and leaves out the columns
that nobody asks for; but what it hands over of the row must then begin with the row's first column and leave
out none in between, or ORC would take one for another. So every column is taken from an expression that has
the row as a whole (:data:`_WHOLE`), which Spark's pruning of nested columns does not see through.

**The trap of pushed conditions.** ORC looks a condition that Spark pushes down up among the columns of the
*user's* row, where a column of that name silently decides which rows are read: ``bucket > 0``, or
``row.id > 0`` if the user has a column ``row`` with a field ``id``. Conditions on the first five columns hide
in ``coalesce``; by position, those on the row do, too.

**Few steps.** Spark takes some milliseconds for every DataFrame that is made of another, and Python a call of
the JVM for every item of a list: a scan gives its columns as texts, of which the caller makes one selection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from py4j.java_gateway import JavaClass
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql import types as spark_types

from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.tables.read.arrow_rows import RowFile, rows_of_file
from airflow_hive_federation.tables.read.doubtful_times import checked, has_timestamps
from airflow_hive_federation.tables.read.footers import row_columns

WRITE_ID, BUCKET, ROW_ID = "__acid_write_id", "__acid_bucket", "__acid_row_id"
FILE = "__acid_file"
"""Where a row comes from: the URI of its file, or of its partition's directory."""
PLACE = "__acid_place"
KEYS = (WRITE_ID, BUCKET, ROW_ID)
# coalesce(), because a join or a user's condition on a bare column would be pushed down: "bucket is not null"
# would then be asked of the user's column of that name, which is null in every delete event.
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
"""A reader option that tells our own scans from others; see :mod:`.guard`."""
# Rows of files that are gone or broken are never left out, whatever the session says.
STRICT = {OURS: "true", "ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
_INSERT, _DELETE = 0, 2
_GLOB_CHARACTERS = re.compile(r"([\[\]{}*?\\])")
_EMPTY_AUTHORITY = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):///")
_PLAIN_LOCATION = re.compile(
    r"(?:(?P<file>file:)(?://(?=/))?|(?P<store>[a-z][a-z0-9]*://[A-Za-z0-9.:-]+))"
    r"(?P<path>(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9_.=-]+)+)"
)
_BY_POSITION = {"orc.force.positional.evolution": "true"}
# Only a delete event has no row. What Spark can fold it would fold, and then take columns out of the row.
_WHOLE = "coalesce(`row`, raise_error('A file of inserts of a Hive ACID table has an event without a row.'))"
_NEUTRAL = "__acid_column_"
_CHEAP = (spark_types.BooleanType, spark_types.NumericType, spark_types.DateType)
# Broadcast by rows: deletes compress so well that their bytes say nothing (400,000 in 6 KB).
_BROADCAST_ROWS = 2_000_000
_LONG_AGO_MS = -62_000_000_000_000
_VISIBILITY = re.compile(r"_v\d+\Z")


@dataclass(frozen=True, kw_only=True)
class Scan:
    """Files to read together.

    :param paths: files, as texts of qualified Hadoop paths.
    :param filtered: rows must be filtered by their write id.
    """

    paths: tuple[str, ...]
    filtered: bool


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of a frame, and the columns that are to be made of them.

    :param columns: expressions over the frame in Spark's SQL, by name.
    """

    frame: DataFrame
    columns: Mapping[str, str]

    @classmethod
    def named(cls, frame: DataFrame, names: Iterable[str]) -> Rows:
        """Take columns of a frame as they are."""
        return cls(frame=frame, columns={name: quoted(name) for name in names})

    def made(self) -> DataFrame:
        """Make a frame of just these columns."""
        return self.frame.selectExpr(*(f"{text} as {quoted(name)}" for name, text in self.columns.items()))


def acid_rows(
    spark: SparkSession,
    scan: Scan,
    schema: spark_types.StructType,
    write_ids: ValidWriteIds,
    *,
    by_position: bool,
) -> Rows:
    """Read insert events: the row's columns and the four columns of its identity.

    :param schema: the row's columns; by position, the first ones may do.
    :param by_position: match columns by position, as Hive does: all of them are read. By name, only those
        that are used are; see :func:`names_fit`.
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
    """Read delete events: the identities of the rows they delete."""
    frames = []
    for scan in scans:
        conditions = [keep(schema, _DELETE), *([_is_valid(write_ids)] if scan.filtered else [])]
        frame = _read_acid(spark, scan.paths, schema).where(" and ".join(conditions))
        frames.append(Rows(frame=frame, columns=_KEY_TEXTS).made())
    return union(frames)


def without(rows: DataFrame, deleted: DataFrame, *, at_most: int) -> DataFrame:
    """Leave out the rows whose identity is among the deleted ones, by a join.

    :param rows: with the columns of an identity, and the index of the place.
    :param deleted: with the same.
    :param at_most: how many deletes there are, or more.
    """
    # The place belongs to the key: writers number the rows of every partition from 0.
    keys = [*KEYS, PLACE]
    # A join by one number is far quicker than by four columns, which are compared only where it is equal.
    theirs = deleted.select(
        _hashed().alias(_DELETED_HASHED), *(fn.col(key).alias(f"{key}_d") for key in keys)
    )
    hinted = fn.broadcast(theirs) if at_most <= _BROADCAST_ROWS else theirs.hint("merge")
    condition = fn.col(_HASHED) == fn.col(_DELETED_HASHED)
    for key in keys:
        # Not as an equality, which would become part of the key.
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

    :param options: further options of Spark's reader.
    """
    every = {**STRICT, **(_BY_POSITION if file_format == "orc" else {}), **(options or {})}
    frame = spark.read.schema(schema).options(**every).format(file_format).load(escaped(paths))
    columns = {name: quoted(name) for name in schema.names}
    if file_format == "orc":
        columns = _checked(spark, columns, schema)
    nulls = {field.name: f"cast(null as {field.dataType.simpleString()})" for field in _KEY_FIELDS[:3]}
    return Rows(frame=frame, columns=columns | nulls | {FILE: _KEY_TEXTS[FILE]}).made()


def arrow_rows(spark: SparkSession, files: Sequence[RowFile], schema: spark_types.StructType) -> DataFrame:
    """Read files that Spark's reader cannot: only a head of the file counts, or rows are known by position.

    A file is held in memory as a whole.
    """
    by_path = {file.path: file for file in files}
    result = spark_types.StructType([*schema.fields, *_KEY_FIELDS])
    zone = jvm_zone(spark)

    def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, content in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                yield from rows_of_file(by_path[path], content.as_buffer(), result, zone)

    return _contents(spark, [file.path for file in files]).mapInArrow(convert, result)


def keep(schema: spark_types.StructType, operation: int) -> str:
    """Build the filter every scan of ACID files needs, in Spark's SQL; see the module's text.

    ``operation`` is never null, so that nothing else is looked at; but Spark does not know that, and has all
    six columns read.
    """
    cheapest = next((f for f in schema.fields if isinstance(f.dataType, _CHEAP)), schema.fields[0])
    value = f"cast(`row`.{quoted(cheapest.name)} is null as bigint)"
    found = f"coalesce(operation, originalTransaction, bucket, rowId, currentTransaction, {value})"
    # What updates there are among inserts of Hive 2 is refused by the footers: here it would cost time.
    return f"{found} < {_DELETE}" if operation == _INSERT else f"{found} = {operation}"


def quoted(name: str) -> str:
    """Quote a column's name for Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Put frames of the same columns one below the other."""
    result = frames[0]
    for frame in frames[1:]:
        result = result.unionAll(frame)
    return result


def qualified(spark: SparkSession, location: str) -> tuple[str, str]:
    """Return a location as the text of a qualified Hadoop path, and as ``_metadata.file_path`` has it."""
    # Most are qualified, have nothing to escape, and need not be asked about.
    if plain := _PLAIN_LOCATION.fullmatch(location):
        path = f"{plain['file'] or plain['store']}{plain['path']}"
        return path, path
    path = java_class(spark, "org.apache.hadoop.fs.Path")(location)
    context = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
    path = path.getFileSystem(context).makeQualified(path)
    # A URI without authority comes as scheme:///x or scheme:/x, depending on how it was made.
    return path.toString(), _EMPTY_AUTHORITY.sub(r"\1:/", path.toUri().toString())


def names_fit(
    paths: Sequence[str], schema: spark_types.StructType, options: Mapping[str, Any] | None
) -> bool:
    """Whether matching columns by name is the same as by position, as Hive matches those of ORC files.

    It is as long as every file's columns are the first of the table's; and none may be called ``row``, for a
    condition on a field of it would be taken for one on the row.

    :raises FileVanishedError: if a file is gone.
    :raises AcidFormatError: if one cannot be read.
    """
    names = tuple(name.lower() for name in schema.names)
    # The files of one statement, or of one compaction of a directory, were written with the same columns.
    one_each = {_written_by(path): path for path in paths}
    of_files = row_columns(list(one_each.values()), options)
    return "row" not in names and all(found == names[: len(found)] for found in of_files)


def _written_by(path: str) -> str:
    directory = path.rpartition("/")[0]
    name = directory.rpartition("/")[2]
    return directory if _VISIBILITY.search(name) else name


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
    return spark.read.schema(acid).options(**options).orc(_texts(spark, escaped(paths)))


def _checked(
    spark: SparkSession, columns: Mapping[str, str], schema: spark_types.StructType
) -> dict[str, str]:
    """Have columns of ORC files fail where Java's reader mistakes timestamps; see :mod:`.doubtful_times`."""
    if not has_timestamps(schema):
        return dict(columns)
    zone = jvm_zone(spark)
    offset_s = standard_offset_s(spark, zone)
    return {
        name: checked(text, field.dataType, zone, offset_s, told=name)
        for (name, text), field in zip(columns.items(), schema.fields, strict=True)
    }


def _is_valid(write_ids: ValidWriteIds) -> str:
    # coalesce() keeps Spark from pushing the condition down.
    current = "coalesce(currentTransaction, 0L)"
    condition = f"{current} <= {write_ids.high_watermark}L"
    if write_ids.invalid_ids:
        condition += f" and {current} not in ({', '.join(f'{one}L' for one in write_ids.invalid_ids)})"
    return condition


def _contents(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    return spark.read.format("binaryFile").options(**STRICT).load(escaped(paths)).select("path", "content")


def escaped(paths: Sequence[str]) -> list[str]:
    """Escape what Spark takes for wildcards in paths."""
    # (Its internal option against that lists other paths twice.)
    return [_GLOB_CHARACTERS.sub(r"\\\1", path) for path in paths]


def _texts(spark: SparkSession, texts: Sequence[str]) -> Any:
    """Make a list of the JVM's, which otherwise would take one call for each item."""
    split = java_class(spark, "org.apache.hadoop.util.StringUtils").getStringCollection
    return split("\0".join(texts), "\0")


def jvm_zone(spark: SparkSession) -> str:
    """The time zone by which wall clocks are instants here, as Spark's own ORC reader has it: the JVM's."""
    return str(java_class(spark, "java.util.TimeZone").getDefault().getID())


def at_same_clock(instant: SparkColumn, theirs: str, ours: str) -> SparkColumn:
    """Return when the clock of one time zone shows what that of another does at an instant."""
    return instant if theirs == ours else fn.to_utc_timestamp(fn.from_utc_timestamp(instant, theirs), ours)


def standard_offset_s(spark: SparkSession, zone: str) -> int:
    """Return how many seconds a zone's clock was ahead of UTC before 1900, to ``java.util.TimeZone``."""
    milliseconds = java_class(spark, "java.util.TimeZone").getTimeZone(zone).getOffset(_LONG_AGO_MS)
    return int(milliseconds) // 1_000


def column_of(spark: SparkSession, expression: Any) -> SparkColumn:
    """Make a column of an expression of the JVM's."""
    utilities = java_class(spark, "org.apache.spark.sql.classic.ExpressionUtils")
    return SparkColumn(utilities.column(expression))


def java_class(spark: SparkSession, name: str) -> Any:
    """A class of the JVM's, without the call for each part of its name that ``spark._jvm`` makes."""
    return JavaClass(name, cast("Any", spark)._jvm._gateway_client)  # noqa: SLF001

"""Rows of one ORC file by pyarrow, with their identities; runs inside Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import to_arrow_type

from airflow_hive_federation.acid.calendars import proleptic_dates
from airflow_hive_federation.acid.orc.assembly import PROLEPTIC
from airflow_hive_federation.acid.orc.tail import read_tail
from airflow_hive_federation.acid.rewrite import ACID_COLUMNS
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.write_ids import ValidWriteIds


@dataclass(frozen=True)
class _Times:
    """How a file's dates and timestamps are to be understood.

    :param zone: time zone in which wall clocks become instants.
    :param julian: dates before 15 October 1582 are of the Julian calendar.
    """

    zone: str
    julian: bool


@dataclass(frozen=True, kw_only=True)
class RowFile:
    """A file to read row by row.

    :param path: text of its qualified Hadoop path.
    :param directory: URI of the partition's directory, part of the identity of its rows.
    :param length: only so many bytes count; ``None`` means all.
    :param write_ids: for a file with ACID columns, which rows are visible; ``None`` for a plain file.
    :param write_id: for a plain file, the write id its rows have.
    :param bucket: for a plain file, the bucket property its rows have.
    :param first_row: for a plain file, the number of its first row.
    """

    path: str
    directory: str
    length: int | None = None
    write_ids: ValidWriteIds | None = None
    write_id: int = 0
    bucket: int = 0
    first_row: int = 0


def bucket_property(bucket: int, statement_id: int | None) -> int:
    """Encode a row id's bucket (``BucketCodec.V1``); a missing statement counts as 0."""
    return 0x20000000 | bucket << 16 | (statement_id or 0)


def rows_of_file(
    file: RowFile, content: pa.Buffer, schema: spark_types.StructType, zone: str
) -> Iterator[pa.RecordBatch]:
    """Yield a file's visible rows.

    :param schema: the user's columns, then write id, bucket, row id and directory.
    :param zone: time zone in which wall clocks become instants.
    :raises AcidFormatError: if the file is truncated, has not the columns it should have, or has timestamps
        outside the years 1677 to 2262.
    """
    counted = content if file.length is None else content.slice(0, file.length)
    reader = _open(file.path, counted)
    times = _Times(zone, _is_julian(reader.schema, counted, file.path))
    first = file.first_row
    for stripe in range(reader.nstripes):
        batch = _stripe(reader, stripe, file.path)
        if file.write_ids is None:
            arrays = _plain_arrays(batch, schema, times)
            arrays += [
                pa.repeat(pa.scalar(file.write_id, pa.int64()), batch.num_rows),
                pa.repeat(pa.scalar(file.bucket, pa.int32()), batch.num_rows),
                pa.array(range(first, first + batch.num_rows), pa.int64()),
            ]
            first += batch.num_rows
        else:
            batch = _visible_inserts(file, batch)
            row = batch.column("row")
            arrays = _plain_arrays(pa.RecordBatch.from_struct_array(row), schema, times)
            arrays += [batch.column(name) for name in ("originalTransaction", "bucket", "rowId")]
        arrays.append(pa.repeat(pa.scalar(file.directory), batch.num_rows))
        yield pa.RecordBatch.from_arrays(arrays, names=schema.names)


def _open(path: str, content: pa.Buffer) -> orc.ORCFile:
    try:
        return orc.ORCFile(pa.BufferReader(content))
    except (pa.ArrowException, OSError) as error:
        raise AcidFormatError(f"{path} is not a whole ORC file: {error}.", path=path) from error


def _stripe(reader: orc.ORCFile, stripe: int, path: str) -> pa.RecordBatch:
    try:
        return reader.read_stripe(stripe)
    except (pa.ArrowException, OSError) as error:
        if "out of range for nanosecond" in str(error):
            raise AcidFormatError(
                f"{path} has timestamps outside the years 1677 to 2262, which cannot be read here from files "
                "that are still being written or have no ROW__IDs of their own.",
                remedy="Compact the table (major) with Hive's own worker.",
                path=path,
            ) from error
        raise AcidFormatError(f"{path} cannot be read: {error}.", path=path) from error


def _is_julian(schema: pa.Schema, content: pa.Buffer, path: str) -> bool:
    # Only of dates: pyarrow reads no timestamp that is so early. A file that does not say its calendar goes
    # by the Julian one (OrcConf.PROLEPTIC_GREGORIAN_DEFAULT).
    return "date32" in str(schema) and read_tail(pa.BufferReader(content), path).calendar != PROLEPTIC


def _visible_inserts(file: RowFile, batch: pa.RecordBatch) -> pa.RecordBatch:
    if tuple(batch.schema.names) != ACID_COLUMNS or file.write_ids is None:
        raise AcidFormatError(f"{file.path} has not the columns of an ACID file.", path=file.path)
    current = batch.column("currentTransaction")
    mask = pc.and_(
        pc.less(batch.column("operation"), 2), pc.less_equal(current, file.write_ids.high_watermark)
    )
    invalid = pa.array(file.write_ids.invalid_ids, pa.int64())
    return batch.filter(pc.and_(mask, pc.invert(pc.is_in(current, value_set=invalid))))


def _plain_arrays(batch: pa.RecordBatch, schema: spark_types.StructType, times: _Times) -> list[pa.Array]:
    arrays = []
    # By position, as Hive does; the last four fields are the rows' identities.
    for index, field in enumerate(schema.fields[:-4]):
        if index < batch.num_columns:
            arrays.append(_converted(batch.column(index), field.dataType, times))
        else:
            arrays.append(pa.nulls(batch.num_rows, to_arrow_type(field.dataType)))
    return arrays


def _converted(array: pa.Array, wanted: spark_types.DataType, times: _Times) -> pa.Array:
    if times.julian and pa.types.is_date32(array.type):
        array = proleptic_dates(array)
    if isinstance(wanted, spark_types.TimestampType):
        if pa.types.is_timestamp(array.type) and array.type.tz is None:
            naive = array.cast(pa.timestamp("us"), safe=False)
            array = pc.assume_timezone(naive, times.zone, ambiguous="earliest", nonexistent="latest")
        return array.cast(pa.timestamp("us", "UTC"), safe=False)
    if isinstance(wanted, spark_types.ArrayType):
        values = _converted(array.values, wanted.elementType, times)
        return pa.ListArray.from_arrays(array.offsets, values, mask=array.is_null())
    if isinstance(wanted, spark_types.MapType):
        keys = _converted(array.keys, wanted.keyType, times)
        items = _converted(array.items, wanted.valueType, times)
        return pa.MapArray.from_arrays(array.offsets, keys, items, mask=array.is_null())
    if isinstance(wanted, spark_types.StructType):
        present = {field.name.lower(): index for index, field in enumerate(array.type)}
        children = [
            _converted(array.field(present[field.name.lower()]), field.dataType, times)
            if field.name.lower() in present
            else pa.nulls(len(array), to_arrow_type(field.dataType))
            for field in wanted.fields
        ]
        return pa.StructArray.from_arrays(children, names=wanted.names, mask=array.is_null())
    return array.cast(to_arrow_type(wanted))

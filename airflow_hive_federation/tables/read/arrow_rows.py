"""Reads the rows of one ORC file by pyarrow, with their identities, inside Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import to_arrow_type

from airflow_hive_federation.acid.rewrite import ACID_COLUMNS
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.orc.batches import OrcBatches
from airflow_hive_federation.orc.tail import damaged, read_tail


@dataclass(frozen=True, kw_only=True)
class RowFile:
    """An ORC file that a Python worker reads row by row.

    :param path: the file's qualified Hadoop path, as text.
    :param directory: URI of the partition's directory, part of the identity of its rows.
    :param length: number of bytes that count, from the start of the file; ``None`` means all.
    :param write_ids: for a file with ACID columns, the valid write ids, which decide the visible rows;
        ``None`` for a plain file.
    :param write_id: for a plain file, the write id of its rows.
    :param bucket: for a plain file, the bucket property of its rows.
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
    """Yield a file's visible rows in batches.

    :param schema: the user's columns, then write id, bucket, row id and directory.
    :param zone: time zone in which wall clocks become instants.
    :raises AcidFormatError: if the file is truncated, or lacks the columns it should have.
    """
    head = content if file.length is None else content.slice(0, file.length)
    first = file.first_row
    for batch in _batches(file.path, head):
        if file.write_ids is None:
            arrays = _plain_arrays(batch, schema, zone)
            arrays += [
                pa.repeat(pa.scalar(file.write_id, pa.int64()), batch.num_rows),
                pa.repeat(pa.scalar(file.bucket, pa.int32()), batch.num_rows),
                pa.array(range(first, first + batch.num_rows), pa.int64()),
            ]
            first += batch.num_rows
        else:
            visible = _visible_inserts(file, batch)
            row = visible.column("row")
            arrays = _plain_arrays(pa.RecordBatch.from_struct_array(row), schema, zone)
            arrays += [visible.column(name) for name in ("originalTransaction", "bucket", "rowId")]
        arrays.append(pa.repeat(pa.scalar(file.directory), len(arrays[0])))
        yield pa.RecordBatch.from_arrays(arrays, names=schema.names)


def _batches(path: str, content: pa.Buffer) -> Iterator[pa.RecordBatch]:
    opened = pa.BufferReader(content)
    tail = read_tail(opened, path)
    try:
        yield from OrcBatches(
            opened, path, tail, size_bytes=content.size, nanoseconds=False, proleptic=True
        ).batches()
    except (pa.ArrowException, OSError) as error:
        raise damaged(f"{path} cannot be read: {error}.", path) from error
    except AcidFormatError as error:
        raise damaged(f"{path} cannot be read: {error.message}", path) from error


def _visible_inserts(file: RowFile, batch: pa.RecordBatch) -> pa.RecordBatch:
    if tuple(batch.schema.names) != ACID_COLUMNS or file.write_ids is None:
        raise damaged(f"{file.path} does not have the columns of an ACID file.", file.path)
    current = batch.column("currentTransaction")
    mask = pc.and_(
        pc.less(batch.column("operation"), 2), pc.less_equal(current, file.write_ids.high_watermark)
    )
    invalid = pa.array(file.write_ids.invalid_ids, pa.int64())
    return batch.filter(pc.and_(mask, pc.invert(pc.is_in(current, value_set=invalid))))


def _plain_arrays(batch: pa.RecordBatch, schema: spark_types.StructType, zone: str) -> list[pa.Array]:
    arrays = []
    # Columns match by position, as in Hive; the last four fields are the rows' identities.
    for index, field in enumerate(schema.fields[:-4]):
        if index < batch.num_columns:
            arrays.append(_converted(batch.column(index), field.dataType, zone))
        else:
            arrays.append(pa.nulls(batch.num_rows, to_arrow_type(field.dataType)))
    return arrays


def _converted(array: pa.Array, wanted: spark_types.DataType, zone: str) -> pa.Array:
    if isinstance(wanted, spark_types.TimestampType):
        if pa.types.is_timestamp(array.type) and array.type.tz is None:
            naive = array.cast(pa.timestamp("us"), safe=False)
            array = pc.assume_timezone(naive, zone, ambiguous="earliest", nonexistent="latest")
        return array.cast(pa.timestamp("us", "UTC"), safe=False)
    if isinstance(wanted, spark_types.ArrayType):
        values = _converted(array.values, wanted.elementType, zone)
        return pa.ListArray.from_arrays(array.offsets, values, mask=array.is_null())
    if isinstance(wanted, spark_types.MapType):
        keys = _converted(array.keys, wanted.keyType, zone)
        items = _converted(array.items, wanted.valueType, zone)
        return pa.MapArray.from_arrays(array.offsets, keys, items, mask=array.is_null())
    if isinstance(wanted, spark_types.StructType):
        present = {field.name.lower(): index for index, field in enumerate(array.type)}
        children = [
            _converted(array.field(present[field.name.lower()]), field.dataType, zone)
            if field.name.lower() in present
            else pa.nulls(len(array), to_arrow_type(field.dataType))
            for field in wanted.fields
        ]
        return pa.StructArray.from_arrays(children, names=wanted.names, mask=array.is_null())
    return array.cast(to_arrow_type(wanted))

"""Files of a statement, written by Spark's Python workers under hidden names.

A task attempt writes files of its own; which attempt counts is Spark's decision, and only the files that the
job's result names are given their final names by the driver. Retried, speculative and zombie attempts thus
leave nothing visible.
"""

from __future__ import annotations

import gc
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_hive_federation.acid.arrow_columns import arrow_type
from airflow_hive_federation.acid.arrow_rows import bucket_property
from airflow_hive_federation.acid.orc.assembly import type_messages
from airflow_hive_federation.acid.orc.early_timestamps import storable
from airflow_hive_federation.acid.orc.file_writer import OrcFileWriter
from airflow_hive_federation.acid.orc.timestamps import has_unstorable_timestamp
from airflow_hive_federation.acid.rewrite import ACID_COLUMNS
from airflow_hive_federation.acid.text_tables import TextForm
from airflow_hive_federation.acid.write.columns import stored
from airflow_hive_federation.acid.write.plan import MAX_BUCKET
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.types import Column, Field, HiveType
from airflow_hive_federation.storage.filesystem import local_path, open_filesystem, storage_errors

RESULT_SCHEMA = (
    "path string, values array<string>, bucket int, row_count bigint, size_bytes bigint, problem string"
)
_ACID_TYPES = ("int", "bigint", "int", "bigint", "bigint")
_Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, kw_only=True)
class Writing:
    """What every task of a statement has to know.

    :param staging: URI of the statement's hidden directory.
    :param purpose: begins the names of the files, e.g. ``insert``.
    :param columns: the table's columns.
    :param partition_width: so many columns with partition value texts follow those of the rows.
    :param bucketed: a column with the bucket number comes last.
    :param zone: time zone whose wall clock timestamps are stored by.
    :param write_id: the statement's write id.
    :param statement_id: goes into the row ids.
    :param text: how lines are made, of columns that come as texts.
    """

    staging: str
    storage_options: Mapping[str, Any] | None
    purpose: str
    file_format: str
    columns: tuple[Column, ...]
    partition_width: int
    bucketed: bool
    zone: str
    compression: str
    write_id: int
    statement_id: int
    text: TextForm | None = None


def write_inserts(writing: Writing) -> Callable[[_Batches], _Batches]:
    """Make the function that writes a task's rows, sorted by partition and bucket, as new rows."""

    def write(batches: _Batches) -> _Batches:
        task, attempt = _task()
        if not writing.bucketed and task > MAX_BUCKET:
            yield _problem(f"bucket {task} is out of range, row ids end at {MAX_BUCKET}: coalesce the rows")
            return
        yield from _write(writing, task, attempt, batches, _NewRows)

    return write


def write_deletes(writing: Writing) -> Callable[[_Batches], _Batches]:
    """Make the function that writes a task's row ids as deletes.

    Batches hold write id, bucket property, row id and whether there is such a row, then partition texts and
    the bucket; sorted by partition, bucket, write id, bucket property and row id.
    """

    def write(batches: _Batches) -> _Batches:
        yield from _write(writing, *_task(), batches, _DeletedRows)

    return write


def _task() -> tuple[int, int]:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("not inside a Spark task")
    _spare_collections()
    return context.partitionId(), context.taskAttemptId()


@cache
def _spare_collections() -> None:
    """Keep what is there when a worker begins out of its garbage collections.

    After every task Spark's daemon collects garbage, and looks at all that pyarrow, pandas and others have
    made on their import: 40 ms a task, which a table of many buckets pays for each of them.
    """
    gc.freeze()


def _write(
    writing: Writing, task: int, attempt: int, batches: _Batches, rows_of: Callable[[Writing, int], _Rows]
) -> _Batches:
    key: tuple[Any, ...] | None = None
    file: _OpenFile | None = None
    count = 0
    try:
        for next_key, batch in _runs(writing, batches):
            if file is None or next_key != key:
                if file is not None:
                    yield file.close()
                key = next_key
                bucket = int(key[-1]) if writing.bucketed else task
                values = [str(value) for value in key[: writing.partition_width]]
                name = f"{writing.purpose}-{task}-{attempt}-{count}"
                file = _OpenFile(writing, name, values, bucket, rows_of(writing, bucket))
                count += 1
            problem = file.write(batch)
            if problem:
                yield _problem(problem)
                return
        if file is not None:
            yield file.close()
            file = None
    finally:
        if file is not None:
            file.discard()


def _runs(writing: Writing, batches: _Batches) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Cut batches where the partition or the bucket changes."""
    width = writing.partition_width + writing.bucketed
    for batch in batches:
        if not batch.num_rows:
            continue
        data_width = batch.num_columns - width
        keys = [batch.column(index) for index in range(data_width, batch.num_columns)]
        rows = batch.select(range(data_width))
        bounds = [0, *_changes(keys, batch.num_rows), batch.num_rows]
        for start, end in itertools.pairwise(bounds):
            yield tuple(key[start].as_py() for key in keys), rows.slice(start, end - start)


def _changes(keys: list[pa.Array], count: int) -> list[int]:
    changed = np.zeros(count - 1, np.bool_)
    for key in keys:
        differs = pc.not_equal(key.slice(1), key.slice(0, count - 1))
        changed |= differs.to_numpy(zero_copy_only=False)
    return [int(index) + 1 for index in np.flatnonzero(changed)]


class _Rows(Protocol):
    """What goes into a file."""

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Make a batch of the file from one of the task; raise ``_RefusedError`` if it may not be."""

    def user_metadata(self, stripe_rows: Sequence[int]) -> Mapping[str, bytes]:
        """Return Hive's metadata of the finished file."""


class _RefusedError(Exception):
    """The rows are not what they should be."""


class _NewRows:
    def __init__(self, writing: Writing, bucket: int) -> None:
        self._writing = writing
        self._property = bucket_property(bucket, writing.statement_id)
        self._count = 0

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = self._writing.columns
        if self._writing.text is not None:
            try:
                return pa.RecordBatch.from_arrays([self._writing.text.lines(batch.columns)], names=["line"])
            except ValueError as refused:
                raise _RefusedError(str(refused)) from refused
        arrays = [
            stored(array, column.type, self._writing.zone)
            for array, column in zip(batch.columns, columns, strict=True)
        ]
        names = [column.name for column in columns]
        if self._writing.file_format != "parquet":
            for array, column in zip(arrays, columns, strict=True):
                _check_timestamps(array, column.name)
        if self._writing.file_format != "acid":
            return pa.RecordBatch.from_arrays(arrays, names=names)
        first, self._count = self._count, self._count + batch.num_rows
        write_id = pa.repeat(pa.scalar(self._writing.write_id, pa.int64()), batch.num_rows)
        return _acid_batch(
            0,
            write_id,
            pa.repeat(pa.scalar(self._property, pa.int32()), batch.num_rows),
            pa.array(np.arange(first, self._count, dtype=np.int64)),
            write_id,
            pa.StructArray.from_arrays(arrays, names=names),
        )

    def user_metadata(self, stripe_rows: Sequence[int]) -> Mapping[str, bytes]:
        lasts = np.cumsum(stripe_rows) - 1
        index = [f"{self._writing.write_id},{self._property},{last};" for last in lasts]
        return _hive_metadata(index, f"{self._count},0,0")


def _check_timestamps(array: pa.Array, name: str) -> None:
    if has_unstorable_timestamp(array):
        try:
            storable(pa.table([array], names=[name]))
        except AcidFormatError as error:
            raise _RefusedError(f"column {name}: {error.message}") from error


class _DeletedRows:
    def __init__(self, writing: Writing, _bucket: int) -> None:
        self._writing = writing
        self._row = pa.struct([(column.name, arrow_type(column.type)) for column in writing.columns])
        self._keys: list[np.ndarray[Any, np.dtype[np.int64]]] = []

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        keys = np.stack(
            [column.to_numpy(zero_copy_only=False).astype(np.int64) for column in batch.columns[:3]], 1
        )
        self._check(keys, batch.column(3))
        self._keys.append(keys)
        return _acid_batch(
            2,
            *batch.columns[:3],
            pa.repeat(pa.scalar(self._writing.write_id, pa.int64()), batch.num_rows),
            pa.nulls(batch.num_rows, self._row),
        )

    def _check(self, keys: np.ndarray[Any, Any], found: pa.Array) -> None:
        missing = pc.index(found, False).as_py()
        if missing >= 0:
            raise _RefusedError(
                f"there is no row with ROW__ID {_row_id(keys[missing])} (any more) in its partition"
            )
        before = self._keys[-1][-1:] if self._keys else keys[:0]
        together = np.concatenate([before, keys])
        twice = np.flatnonzero((together[1:] == together[:-1]).all(axis=1))
        if len(twice):
            raise _RefusedError(f"the row with ROW__ID {_row_id(together[twice[0]])} is changed twice")

    def user_metadata(self, stripe_rows: Sequence[int]) -> Mapping[str, bytes]:
        keys = np.concatenate(self._keys)
        index = [",".join(map(str, keys[last])) + ";" for last in np.cumsum(stripe_rows) - 1]
        return _hive_metadata(index, f"0,0,{len(keys)}")


def _row_id(key: Any) -> str:
    return "(" + ", ".join(map(str, key)) + ")"


def _acid_batch(operation: int, *rest: pa.Array) -> pa.RecordBatch:
    operations = pa.repeat(pa.scalar(operation, pa.int32()), len(rest[0]))
    # operation, originalTransaction, bucket, rowId, currentTransaction, row
    return pa.RecordBatch.from_arrays([operations, *rest], names=ACID_COLUMNS)


def _hive_metadata(index: Sequence[str], counts: str) -> Mapping[str, bytes]:
    return {
        "hive.acid.key.index": "".join(index).encode(),
        "hive.acid.stats": counts.encode(),
        "hive.acid.version": b"2",
    }


class _OpenFile:
    """A file being written, locally; it goes to its store when it is closed."""

    def __init__(self, writing: Writing, name: str, values: list[str], bucket: int, rows: _Rows) -> None:
        self._writing, self._values, self._bucket, self._rows = writing, values, bucket, rows
        self._uri = f"{writing.staging}/{name}"
        self._is_local = local_path(self._uri) is not None
        self._path = Path(local_path(self._uri) or _temporary_name())
        self._writer: Any = None
        self._count = 0

    def write(self, batch: pa.RecordBatch) -> str | None:
        """Add rows; return what is wrong with them."""
        try:
            made = self._rows.take(batch)
        except _RefusedError as refused:
            return str(refused)
        with storage_errors(self._uri):
            if self._writer is None:
                self._writer = self._opened(made.schema)
            self._writer.write(pa.Table.from_batches([made]))
        self._count += batch.num_rows
        return None

    def close(self) -> pa.RecordBatch:
        """Finish the file and return the task's result about it."""
        with storage_errors(self._uri):
            if isinstance(self._writer, OrcFileWriter):
                self._writer.finish(self._user_metadata)
            else:
                self._writer.close()
            size = self._path.stat().st_size
        if not self._is_local:
            filesystem, path = open_filesystem(self._uri, self._writing.storage_options)
            with storage_errors(self._uri):
                filesystem.put_file(str(self._path), path)
            self._path.unlink()
        return _result(
            self._uri, self._values, self._bucket, row_count=self._count, size_bytes=size, problem=None
        )

    def discard(self) -> None:
        """Leave nothing of a file that was not finished."""
        if self._writer is not None:
            self._writer.close()
        self._path.unlink(missing_ok=True)

    def _opened(self, schema: pa.Schema) -> Any:
        if self._writing.file_format == "text":
            return _LineWriter(self._path)
        if self._writing.file_format == "parquet":
            # Hive takes dates without this for hybrid Julian ones.
            metadata = {"writer.date.proleptic": "true", "writer.time.zone": "UTC"}
            return pq.ParquetWriter(
                str(self._path), schema.with_metadata(metadata), compression="snappy", version="2.4"
            )
        return OrcFileWriter(self._path, type_messages(self._row_type()), self._writing.compression)

    def _row_type(self) -> HiveType:
        row = HiveType(
            name="struct", fields=tuple(Field(one.name, one.type) for one in self._writing.columns)
        )
        if self._writing.file_format != "acid":
            return row
        types = [*map(_plain, _ACID_TYPES), row]
        return HiveType(name="struct", fields=tuple(map(Field, ACID_COLUMNS, types)))

    def _user_metadata(self, stripe_rows: Sequence[int]) -> Mapping[str, bytes]:
        return self._rows.user_metadata(stripe_rows) if self._writing.file_format == "acid" else {}


class _LineWriter:
    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, lines: pa.Table) -> None:
        self._file.writelines(line.encode() + b"\n" for line in lines.column(0).to_pylist())

    def close(self) -> None:
        self._file.close()


def _plain(name: str) -> HiveType:
    return HiveType(name=name)


def _temporary_name() -> str:
    with tempfile.NamedTemporaryFile(prefix="hive-bucket-", delete=False) as file:
        return file.name


def _problem(text: str) -> pa.RecordBatch:
    return _result("", [], 0, row_count=0, size_bytes=0, problem=text)


def _result(
    path: str, values: list[str], bucket: int, *, row_count: int, size_bytes: int, problem: str | None
) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([path]),
            pa.array([values], pa.list_(pa.string())),
            pa.array([bucket], pa.int32()),
            pa.array([row_count], pa.int64()),
            pa.array([size_bytes], pa.int64()),
            pa.array([problem], pa.string()),
        ],
        names=["path", "values", "bucket", "row_count", "size_bytes", "problem"],
    )

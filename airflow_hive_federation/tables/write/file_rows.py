"""Makes the content of a statement's files: rows and deletes with identities, and Hive's metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.acid.rewrite import ACID_COLUMNS
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.orc.arrow_columns import arrow_type
from airflow_hive_federation.orc.early_timestamps import storable
from airflow_hive_federation.orc.timestamps import has_unstorable_timestamp
from airflow_hive_federation.tables.read.arrow_rows import bucket_property
from airflow_hive_federation.tables.write.columns import stored
from airflow_hive_federation.tables.write.tasks import Writing


class FileRows(Protocol):
    """The content of one file."""

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Make a batch of the file from a batch of the task; raise ``RefusedRowsError`` for invalid rows."""

    def user_metadata(self, stripe_rows: Sequence[int]) -> Mapping[str, bytes]:
        """Return Hive's metadata for the finished file."""


class RefusedRowsError(Exception):
    """The task's rows cannot be written; the message has the reason."""


class NewRows:
    """Inserted rows of one file, numbered from 0."""

    def __init__(self, writing: Writing, bucket: int) -> None:
        self._writing = writing
        self._property = bucket_property(bucket, writing.statement_id)
        self._count = 0

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = self._writing.columns
        _refuse_nulls(batch, self._writing)
        if self._writing.text is not None:
            try:
                return pa.RecordBatch.from_arrays([self._writing.text.lines(batch.columns)], names=["line"])
            except ValueError as refused:
                raise RefusedRowsError(str(refused)) from refused
        parquet = self._writing.file_format == "parquet"
        arrays = [
            stored(array, column.type, self._writing.zone, padded=not parquet)
            for array, column in zip(batch.columns, columns, strict=True)
        ]
        names = [column.name for column in columns]
        if not parquet:
            for array, column in zip(arrays, columns, strict=True):
                _check_timestamps(array, column.name)
        if self._writing.file_format != "acid":
            return pa.RecordBatch.from_arrays(arrays, names=names)
        first = self.number(batch.num_rows)
        write_id = pa.repeat(pa.scalar(self._writing.write_id, pa.int64()), batch.num_rows)
        return _acid_batch(
            0,
            write_id,
            pa.repeat(pa.scalar(self._property, pa.int32()), batch.num_rows),
            pa.array(np.arange(first, self._count, dtype=np.int64)),
            write_id,
            pa.StructArray.from_arrays(arrays, names=names),
        )

    def number(self, count: int) -> int:
        """Assign numbers to ``count`` rows, and return the first number."""
        first, self._count = self._count, self._count + count
        return first

    def user_metadata(self, stripe_rows: Sequence[int]) -> Mapping[str, bytes]:
        lasts = np.cumsum(stripe_rows) - 1
        index = [f"{self._writing.write_id},{self._property},{last};" for last in lasts]
        return _hive_metadata(index, f"{self._count},0,0")


def _refuse_nulls(batch: pa.RecordBatch, writing: Writing) -> None:
    for array, column in zip(batch.columns, writing.columns, strict=True):
        if array.null_count and column.name in writing.not_null:
            raise RefusedRowsError(f"column {column.name} is NOT NULL, and a row has a null in it")


def _check_timestamps(array: pa.Array, name: str) -> None:
    if has_unstorable_timestamp(array):
        try:
            storable(pa.table([array], names=[name]))
        except AcidFormatError as error:
            raise RefusedRowsError(f"column {name}: {error.message}") from error


class DeletedRows:
    """Delete events of one file."""

    def __init__(self, writing: Writing, _bucket: int) -> None:
        self._writing = writing
        self._row = pa.struct([(column.name, arrow_type(column.type)) for column in writing.columns])
        self._keys: list[npt.NDArray[np.int64]] = []

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        keys = np.stack(
            [column.to_numpy(zero_copy_only=False).astype(np.int64) for column in batch.columns[:3]], 1
        )
        self._check(keys, *batch.columns[3:5])
        self._keys.append(keys)
        return _acid_batch(
            2,
            *batch.columns[:3],
            pa.repeat(pa.scalar(self._writing.write_id, pa.int64()), batch.num_rows),
            pa.nulls(batch.num_rows, self._row),
        )

    def _check(self, keys: np.ndarray[Any, Any], is_present: pa.Array, stays: pa.Array) -> None:
        moved = pc.index(stays, False).as_py()
        if moved >= 0:
            raise RefusedRowsError(
                f"the row with ROW__ID {_row_id(keys[moved])} has other partition values than its partition; "
                "to move it, delete it and insert it anew"
            )
        missing = pc.index(is_present, False).as_py()
        if missing >= 0:
            raise RefusedRowsError(
                f"there is no row with ROW__ID {_row_id(keys[missing])} (any more) in its partition"
            )
        before = self._keys[-1][-1:] if self._keys else keys[:0]
        together = np.concatenate([before, keys])
        twice = np.flatnonzero((together[1:] == together[:-1]).all(axis=1))
        if len(twice):
            raise RefusedRowsError(f"the row with ROW__ID {_row_id(together[twice[0]])} is changed twice")

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

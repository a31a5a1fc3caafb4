"""Writes the files of a statement in Spark's Python workers, under hidden names.

Each task attempt writes files of its own. Spark decides which attempt counts, and the driver gives final
names only to the files in the job's result. Retried, speculative and zombie attempts therefore leave nothing
visible.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_hive_federation.acid.rewrite import ACID_COLUMNS
from airflow_hive_federation.model.types import Field, HiveType
from airflow_hive_federation.orc.assembly import Stripe, type_messages
from airflow_hive_federation.orc.file_writer import OrcFileWriter
from airflow_hive_federation.storage.filesystem import storage_errors
from airflow_hive_federation.tables.write.file_rows import DeletedRows, FileRows, NewRows, RefusedRowsError
from airflow_hive_federation.tables.write.plan import MAX_BUCKET
from airflow_hive_federation.tables.write.tasks import StagedOutput, Writing, outcome, refusal, task_attempt

_ACID_TYPES = ("int", "bigint", "int", "bigint", "bigint")
_Batches = Iterator[pa.RecordBatch]


def write_inserts(writing: Writing) -> Callable[[_Batches], _Batches]:
    """Return the function that writes a task's rows, sorted by partition and bucket, as new rows."""

    def write(batches: _Batches) -> _Batches:
        task, attempt = task_attempt()
        if not writing.bucketed and task > MAX_BUCKET:
            yield refusal(f"bucket {task} is out of range, row ids end at {MAX_BUCKET}: coalesce the rows")
            return
        yield from _write(writing, task, attempt, batches, NewRows)

    return write


def write_deletes(writing: Writing) -> Callable[[_Batches], _Batches]:
    """Return the function that writes a task's row ids as deletes.

    Batches hold write id, bucket property, row id, flags that the row exists and stays in its partition,
    then partition texts and the bucket. They are sorted by partition, bucket, write id, bucket property and
    row id.
    """

    def write(batches: _Batches) -> _Batches:
        yield from _write(writing, *task_attempt(), batches, DeletedRows)

    return write


def _write(
    writing: Writing, task: int, attempt: int, batches: _Batches, rows_of: Callable[[Writing, int], FileRows]
) -> _Batches:
    key: tuple[Any, ...] | None = None
    file: OpenFile | None = None
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
                file = OpenFile(writing, name, values, bucket, rows_of(writing, bucket))
                count += 1
            file.write(batch)
        if file is not None:
            yield file.close()
            file = None
    except RefusedRowsError as refused:
        yield refusal(str(refused))
    finally:
        if file is not None:
            file.discard()


def _runs(writing: Writing, batches: _Batches) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Cut batches at changes of the partition or the bucket, and yield each piece with its key."""
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


class OpenFile:
    """A file that a task is writing."""

    def __init__(self, writing: Writing, name: str, values: list[str], bucket: int, rows: FileRows) -> None:
        self._writing, self._values, self._bucket, self._rows = writing, values, bucket, rows
        target = writing.destination.uri(values, bucket) if writing.destination else ""
        self._output = StagedOutput(writing, name, target)
        self._writer: Any = None
        self._count = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows to the file.

        :raises RefusedRowsError: if the rows cannot be written.
        """
        made = self._rows.take(batch)
        with storage_errors(self._output.uri):
            if self._writer is None:
                self._writer = self._opened(made.schema)
            self._writer.write(pa.Table.from_batches([made]))
        self._count += batch.num_rows

    def add(self, stripe: Stripe) -> None:
        """Add a stripe of encoded and numbered rows."""
        with storage_errors(self._output.uri):
            if self._writer is None:
                self._writer = self._opened()
            self._writer.add(stripe)
        self._count += stripe.rows

    def close(self) -> pa.RecordBatch:
        """Finish the file and return its result row."""
        with storage_errors(self._output.uri):
            if isinstance(self._writer, OrcFileWriter):
                self._writer.finish(self._user_metadata)
            else:
                self._writer.close()
        size = self._output.put()
        return outcome(
            self._output.uri, self._values, self._bucket, row_count=self._count, size_bytes=size, problem=None
        )

    def discard(self) -> None:
        """Remove the unfinished file."""
        if self._writer is not None:
            self._writer.close()
        self._output.discard()

    def _opened(self, schema: pa.Schema | None = None) -> Any:
        if self._writing.file_format == "text":
            return _LineWriter(self._output.path)
        if self._writing.file_format == "parquet" and schema is not None:
            # Without this property, Hive reads dates in the hybrid Julian calendar.
            metadata = {"writer.date.proleptic": "true", "writer.time.zone": "UTC"}
            return pq.ParquetWriter(
                str(self._output.path), schema.with_metadata(metadata), compression="snappy", version="2.4"
            )
        writing = self._writing
        return OrcFileWriter(self._output.path, file_types(writing), writing.compression, writing.filters)

    def _user_metadata(self, stripe_rows: Sequence[int]) -> Mapping[str, bytes]:
        return self._rows.user_metadata(stripe_rows) if self._writing.file_format == "acid" else {}


def file_types(writing: Writing) -> list[bytes]:
    """Return the ``Type`` messages of the statement's ORC files."""
    row = HiveType(name="struct", fields=tuple(Field(column.name, column.type) for column in writing.columns))
    if writing.file_format != "acid":
        return type_messages(row)
    types = [*map(_plain, _ACID_TYPES), row]
    return type_messages(HiveType(name="struct", fields=tuple(map(Field, ACID_COLUMNS, types))))


class _LineWriter:
    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, lines: pa.Table) -> None:
        self._file.writelines(line.encode() + b"\n" for line in lines.column(0).to_pylist())

    def close(self) -> None:
        self._file.close()


def _plain(name: str) -> HiveType:
    return HiveType(name=name)

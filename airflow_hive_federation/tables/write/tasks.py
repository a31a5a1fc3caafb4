"""What the tasks of a statement are told, and what they return; they run in Spark's Python workers."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_hive_federation.model.types import Column
from airflow_hive_federation.orc.properties import NO_FILTERS, BloomFilters
from airflow_hive_federation.storage import durable
from airflow_hive_federation.storage.filesystem import local_path, open_filesystem, storage_errors
from airflow_hive_federation.tables.read.formats.text import TextForm
from airflow_hive_federation.tables.write.plan import Buckets

#: What tasks return of each file; ``problem`` says why there is none.
RESULT_SCHEMA = (
    "path string, values array<string>, bucket int, row_count bigint, size_bytes bigint, problem string"
)


@dataclass(frozen=True, kw_only=True)
class Writing:
    """What every task of a statement has to know.

    :param staging: URI of the statement's hidden directory.
    :param purpose: begins the names of the files, e.g. ``insert``.
    :param columns: the table's columns.
    :param partition_width: so many columns with partition value texts follow those of the rows.
    :param bucketed: a column with the bucket number comes last, but not for :mod:`.fragments`.
    :param zone: time zone whose wall clock timestamps are stored by.
    :param write_id: the statement's write id.
    :param statement_id: goes into the row ids.
    :param filters: Bloom filters of ORC files.
    :param text: how lines are made, of columns that come as texts.
    :param buckets: how :mod:`.fragments` shares out rows, which come without the number of their bucket.
    """

    staging: str
    storage_options: Mapping[str, Any] | None = field(repr=False)
    purpose: str
    file_format: str
    columns: tuple[Column, ...]
    partition_width: int
    bucketed: bool
    zone: str
    compression: str
    write_id: int
    statement_id: int
    filters: BloomFilters = NO_FILTERS
    text: TextForm | None = None
    buckets: Buckets | None = None


def task_attempt() -> tuple[int, int]:
    """Number of this task's partition, and of its attempt, which no other task of the session has.

    :raises RuntimeError: outside of Spark's tasks.
    """
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


class StagedOutput:
    """A file under a hidden name, written locally; it goes to its store when it is finished."""

    def __init__(self, writing: Writing, name: str) -> None:
        self.uri = f"{writing.staging}/{name}"
        self._options = writing.storage_options
        self._is_local = local_path(self.uri) is not None
        self.path = Path(local_path(self.uri) or _temporary_name())

    def put(self) -> int:
        """Bring the finished file where it belongs, and return its length in bytes.

        :raises StorageError: it cannot be stored.
        """
        with storage_errors(self.uri):
            size = self.path.stat().st_size
            if self._is_local:
                # The driver renames it, and commits.
                durable.sync_file(self.path)
        if not self._is_local:
            filesystem, path = open_filesystem(self.uri, self._options)
            with storage_errors(self.uri):
                filesystem.put_file(str(self.path), path)
            self.path.unlink()
        return size

    def discard(self) -> None:
        """Leave nothing of a file that was not finished."""
        self.path.unlink(missing_ok=True)


def refusal(text: str) -> pa.RecordBatch:
    """Tell the driver why a task's rows are not written."""
    return outcome("", [], 0, row_count=0, size_bytes=0, problem=text)


def outcome(
    path: str, values: list[str], bucket: int, *, row_count: int, size_bytes: int, problem: str | None
) -> pa.RecordBatch:
    """Tell the driver of a file, in a batch of ``RESULT_SCHEMA``."""
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


def _temporary_name() -> str:
    with tempfile.NamedTemporaryFile(prefix="hive-bucket-", delete=False) as file:
        return file.name

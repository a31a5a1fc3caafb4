"""Defines the input and the results of a statement's tasks, which run in Spark's Python workers."""

from __future__ import annotations

import gc
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pyarrow as pa

from airflow_hive_federation.model.types import Column
from airflow_hive_federation.orc.properties import NO_FILTERS, BloomFilters
from airflow_hive_federation.storage import durable
from airflow_hive_federation.storage.filesystem import local_path, open_filesystem, storage_errors
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.unfinished_uploads import RECORD, upload
from airflow_hive_federation.tables.read.formats.text import TextForm
from airflow_hive_federation.tables.write.plan import Buckets, Destination

#: A task's result row for each file; ``problem`` holds the reason if the task wrote no file.
RESULT_SCHEMA = (
    "path string, values array<string>, bucket int, row_count bigint, size_bytes bigint, problem string"
)


@dataclass(frozen=True, kw_only=True)
class Writing:
    """The settings that all tasks of a statement share.

    :param staging: URI of the statement's hidden directory.
    :param purpose: prefix of the file names, e.g. ``insert``.
    :param columns: the table's columns.
    :param not_null: those in which a null is refused.
    :param partition_width: number of columns with partition value texts, which follow the rows' columns.
    :param bucketed: a column with the bucket number comes last, except in :mod:`.fragments`.
    :param zone: time zone whose wall clock is stored for a timestamp.
    :param write_id: the statement's write id.
    :param statement_id: the statement's number in its transaction, a part of the row ids.
    :param filters: Bloom filters of ORC files.
    :param text: form of the lines of a text table, whose columns are texts already.
    :param destination: final names of the files, on a store that finishes uploads later; see
        :mod:`.storage.unfinished_uploads`.
    :param buckets: distribution by which :mod:`.fragments` computes the buckets of rows that lack the number.
    """

    staging: str
    storage_options: StorageOptions | None = field(repr=False)
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
    not_null: tuple[str, ...] = ()
    text: TextForm | None = None
    buckets: Buckets | None = None
    destination: Destination | None = None


def task_attempt() -> tuple[int, int]:
    """Return the numbers of this task's partition and attempt; the latter is unique in the session.

    :raises RuntimeError: if the caller is not inside a Spark task.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("not inside a Spark task")
    _spare_collections()
    return context.partitionId(), context.taskAttemptId()


@cache
def _spare_collections() -> None:
    """Exclude the objects of a worker's start from its garbage collections.

    After every task Spark's daemon collects garbage, and traverses all objects that pyarrow, pandas and other
    modules made at their import. This takes 40 ms per task, which a table of many buckets pays per bucket.
    """
    gc.freeze()


class StagedOutput:
    """A file that a task writes locally, and copies to its store when it is finished, without showing it.

    It has a hidden name there, or is an upload that the driver finishes, of which ``uri`` is the record.

    :param target: URI that the file will have; empty for a file that tasks only hand each other.
    """

    def __init__(self, writing: Writing, name: str, target: str = "") -> None:
        self._target = target
        self.uri = f"{writing.staging}/{name}{RECORD if target else ''}"
        self._options = writing.storage_options
        self._is_local = local_path(self.uri) is not None
        self.path = Path(local_path(self.uri) or _temporary_name())

    def put(self) -> int:
        """Store the finished file, and return its length in bytes.

        :raises StorageError: if the file cannot be stored.
        """
        with storage_errors(self.uri):
            size = self.path.stat().st_size
            if self._is_local:
                # The driver renames the file and then commits: the content must be durable by then.
                durable.sync_file(self.path)
        if self._target:
            upload(self.path, self._target, self.uri, self._options)
            self.path.unlink()
        elif not self._is_local:
            filesystem, path = open_filesystem(self.uri, self._options)
            with storage_errors(self.uri):
                filesystem.put_file(str(self.path), path)
            self.path.unlink()
        return size

    def discard(self) -> None:
        """Remove the unfinished file."""
        self.path.unlink(missing_ok=True)


def refusal(text: str) -> pa.RecordBatch:
    """Return the result batch of a task that refused its rows, with the reason."""
    return outcome("", [], 0, row_count=0, size_bytes=0, problem=text)


def outcome(
    path: str, values: list[str], bucket: int, *, row_count: int, size_bytes: int, problem: str | None
) -> pa.RecordBatch:
    """Return the result batch for one file, with ``RESULT_SCHEMA``."""
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

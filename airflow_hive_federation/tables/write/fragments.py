"""Encodes rows in the tasks that hold them, and assembles a bucket's file from the stripes.

Spark takes longer to shuffle the rows of a bucket together than to encode them. Each task therefore encodes
its own rows of each bucket as fragments of one hidden file, and returns only the fragments' places. Another
task assembles the fragments of a bucket into the bucket's file. That task numbers the rows, which no task can
do earlier, and encodes nothing else again. A fragment with too few rows for a stripe holds the rows
themselves; the second task encodes such rows of a bucket together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row, SparkSession

from airflow_hive_federation.acid.bucketing import bucket_numbers
from airflow_hive_federation.acid.row_ids import renumbered
from airflow_hive_federation.orc.assembly import PROLEPTIC, AssembledFile, encode, taken_apart
from airflow_hive_federation.storage.filesystem import local_path, open_filesystem, storage_errors
from airflow_hive_federation.tables.write.columns import stored
from airflow_hive_federation.tables.write.file_rows import NewRows, RefusedRowsError
from airflow_hive_federation.tables.write.files import OpenFile, file_types
from airflow_hive_federation.tables.write.tasks import StagedOutput, Writing, refusal, task_attempt

#: A task's result row for each fragment; ``problem`` holds the reason if the task wrote none.
FRAGMENT_SCHEMA = (
    "bucket int, values array<string>, path string, offset bigint, size bigint, is_encoded boolean,"
    " problem string"
)
# Size of the block of rows in memory that a task distributes among the buckets.
_BLOCK_BYTES = 64 * 1024 * 1024
# A smaller fragment holds rows instead of a stripe.
_STRIPE_BYTES = 1024 * 1024
# The number of the column of row ids in an ACID file.
_ROW_ID = 4
_Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, kw_only=True)
class Fragment:
    """Rows of one bucket in a file of fragments.

    :param values: value texts of the partition.
    :param path: URI of the file.
    :param is_encoded: the fragment is an ORC file, and otherwise an Arrow stream with the rows unchanged.
    """

    bucket: int
    values: list[str]
    path: str
    offset: int
    size: int
    is_encoded: bool


def encode_fragments(writing: Writing) -> Callable[[_Batches], _Batches]:
    """Return the function that encodes a task's rows, all of one partition, in fragments per bucket."""

    def encode_them(batches: _Batches) -> _Batches:
        task, attempt = task_attempt()
        fragments: _Fragments | None = None
        results: list[dict[str, object]] = []
        try:
            for block in _blocks(batches):
                if fragments is None:
                    fragments = _Fragments(writing, f"fragments-{task}-{attempt}")
                fragments.add(block)
            if fragments is not None:
                results = [asdict(fragment) for fragment in fragments.close()]
                fragments = None
        except RefusedRowsError as refused:
            results = [{"problem": str(refused)}]
        finally:
            if fragments is not None:
                fragments.discard()
        yield pa.RecordBatch.from_pylist(results, _SCHEMA)

    return encode_them


_SCHEMA = pa.schema(
    [
        ("bucket", pa.int32()),
        ("values", pa.list_(pa.string())),
        ("path", pa.string()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("is_encoded", pa.bool_()),
        ("problem", pa.string()),
    ]
)


def assemble_fragments(spark: SparkSession, writing: Writing, fragments: Sequence[Row]) -> list[Row]:
    """Assemble the fragments of each bucket into one file, in Spark tasks.

    :param fragments: result rows of :func:`encode_fragments`.
    :return: rows of ``RESULT_SCHEMA``.
    """
    if not fragments:
        return []
    by_bucket: defaultdict[int, list[Fragment]] = defaultdict(list)
    for row in fragments:
        fields = row.asDict()
        del fields["problem"]
        by_bucket[row.bucket].append(Fragment(**fields))

    def assemble(buckets_of_fragments: Iterable[list[Fragment]]) -> Iterable[dict[str, object]]:
        task, attempt = task_attempt()
        for number, bucket_fragments in enumerate(buckets_of_fragments):
            yield from _assembled(
                writing, f"{writing.purpose}-{task}-{attempt}-{number}", bucket_fragments
            ).to_pylist()

    context = spark.sparkContext
    # The overhead of a Spark task exceeds the work of most buckets, so that a task takes several buckets.
    count = min(len(by_bucket), context.defaultParallelism)
    buckets = context.parallelize(list(by_bucket.values()), count)
    return [Row(**result) for result in buckets.mapPartitions(assemble).collect()]


def _assembled(writing: Writing, name: str, fragments: Sequence[Fragment]) -> pa.RecordBatch:
    bucket, values = fragments[0].bucket, fragments[0].values
    rows = NewRows(writing, bucket)
    file = OpenFile(writing, name, values, bucket, rows)
    try:
        for fragment in (encoded for encoded in fragments if encoded.is_encoded):
            for stripe in taken_apart(_content(fragment, writing), fragment.path)[0]:
                first = rows.number(stripe.rows)
                file.add(renumbered(stripe, _ROW_ID, first, writing.compression))
        for fragment in (unencoded for unencoded in fragments if not unencoded.is_encoded):
            for batch in pa.ipc.open_stream(_content(fragment, writing)):
                file.write(batch)
        return file.close()
    except RefusedRowsError as refused:
        file.discard()
        return refusal(str(refused))
    except BaseException:
        file.discard()
        raise


def _blocks(batches: _Batches) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            pending.append(batch)
            size += batch.nbytes
        if size >= _BLOCK_BYTES:
            block, pending, size = pa.Table.from_batches(pending), [], 0
            yield block
    if pending:
        yield pa.Table.from_batches(pending)


class _Fragments:
    """The fragments of one task, one after the other in a file."""

    def __init__(self, writing: Writing, name: str) -> None:
        self._writing = writing
        if writing.buckets is None:
            raise ValueError("only tables with buckets are written in fragments")
        self._by = writing.buckets
        self._output = StagedOutput(writing, name)
        with storage_errors(self._output.uri):
            self._file = self._output.path.open("wb")
        self._fragments: list[Fragment] = []

    def add(self, block: pa.Table) -> None:
        """Distribute a block of rows among the buckets, and encode the rows of each bucket."""
        data = block.num_columns - self._writing.partition_width
        values = [column[0].as_py() for column in block.columns[data:]]
        buckets = self._buckets(block)
        order = pa.array(np.argsort(buckets, kind="stable").astype(np.int32))
        taken = [_taken(column, order) for column in block.columns[:data]]
        rows = pa.RecordBatch.from_arrays(taken, names=block.column_names[:data])
        ends = np.cumsum(np.bincount(buckets))
        for bucket, end in enumerate(ends.tolist()):
            start = int(ends[bucket - 1]) if bucket else 0
            if end > start:
                self._add(bucket, values, rows.slice(start, end - start))

    def _buckets(self, block: pa.Table) -> npt.NDArray[np.uint16]:
        kinds = list(self._by.columns.values())
        columns = [
            stored(pa.concat_arrays(block.column(place).chunks), kind, self._writing.zone)
            for place, kind in self._by.columns.items()
        ]
        numbers = bucket_numbers(columns, kinds, buckets=self._by.count, version=self._by.version)
        # numpy uses a radix sort for numbers of 16 bits.
        return numbers.astype(np.uint16)

    def _add(self, bucket: int, values: list[str], rows: pa.RecordBatch) -> None:
        offset = self._file.tell()
        is_encoded = rows.nbytes >= _STRIPE_BYTES
        with storage_errors(self._output.uri):
            if is_encoded:
                self._encode(NewRows(self._writing, bucket).take(rows))
            else:
                with pa.ipc.new_stream(self._file, rows.schema) as stream:
                    stream.write_batch(rows)
        self._fragments.append(
            Fragment(
                bucket=bucket,
                values=values,
                path=self._output.uri,
                offset=offset,
                size=self._file.tell() - offset,
                is_encoded=is_encoded,
            )
        )

    def _encode(self, rows: pa.RecordBatch) -> None:
        writing = self._writing
        made = AssembledFile(
            self._file, file_types(writing), compression=writing.compression, calendar=PROLEPTIC
        )
        table, filters = pa.Table.from_batches([rows]), writing.filters
        for stripe in encode(table, writing.compression, dictionaries=False, filters=filters):
            made.add(stripe)
        made.finish({})

    def close(self) -> list[Fragment]:
        """Store the file for the other tasks, and return its fragments."""
        with storage_errors(self._output.uri):
            self._file.close()
        self._output.put()
        return self._fragments

    def discard(self) -> None:
        """Remove the file."""
        self._file.close()
        self._output.discard()


def _taken(column: pa.ChunkedArray, order: pa.Array) -> pa.Array:
    # malloc keeps freed pages for the next column; pyarrow's own pool returns them to the kernel.
    pool = pa.system_memory_pool()
    return pc.take(pa.concat_arrays(column.chunks, memory_pool=pool), order, memory_pool=pool)


def _content(fragment: Fragment, writing: Writing) -> memoryview:
    uri, start, size = fragment.path, fragment.offset, fragment.size
    path = local_path(uri)
    with storage_errors(uri):
        if path is None:
            filesystem, name = open_filesystem(uri, writing.storage_options)
            # The driver of S3 has a version before the start.
            return memoryview(filesystem.cat_file(name, start=start, end=start + size))
        with pa.memory_map(path) as file:
            file.seek(start)
            return memoryview(file.read_buffer(size))

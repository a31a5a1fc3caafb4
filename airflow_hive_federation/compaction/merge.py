"""Merges one bucket file of a compaction with pyarrow, in memory that does not grow with the table."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from airflow_hive_federation.compaction.keys import Integers, Keys, in_order, joined_keys, kept
from airflow_hive_federation.compaction.plain import append_files
from airflow_hive_federation.compaction.plan import BucketMerge, FileFormat
from airflow_hive_federation.compaction.rows import BucketReader, DeleteEvents, Rows
from airflow_hive_federation.model.types import Field, HiveType
from airflow_hive_federation.orc.assembly import AssembledFile, Stripe, encode, type_messages
from airflow_hive_federation.orc.properties import BloomFilters
from airflow_hive_federation.storage.filesystem import join
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.permissions import creation_mode
from airflow_hive_federation.storage.publishing import publishing

#: A stripe ends when its rows take this many bytes in memory, or are this many.
STRIPE_BYTES = 64 * 1024 * 1024
STRIPE_ROWS = 500_000

_INSERT, _DELETE = 0, 2


@dataclass(frozen=True, kw_only=True)
class MergeOutcome:
    """The result of a :class:`BucketMerge`.

    :param output: path of the new file, relative to the location; empty if no row remained.
    :param rows: number of rows, or delete events, in the file.
    :param deleted: number of rows that were left out because they are deleted.
    :param size_bytes: length of the file.
    """

    output: str = ""
    rows: int = 0
    deleted: int = 0
    size_bytes: int = 0


def merge_bucket(
    merge: BucketMerge,
    *,
    options: StorageOptions | None = None,
    compression: str | None = None,
    threads: int = 1,
) -> MergeOutcome:
    """Write one file of a compaction; a repeated call writes the same file again.

    :param merge: the files to read and the file to write.
    :param compression: a name of :data:`..orc.compression.COMPRESSIONS`; by default the table's.
    :param threads: number of stripes that are encoded at the same time.
    :raises AcidFormatError: a file is truncated, has other columns than the table, or breaks Hive's layout;
        the error names table, partition and file.
    :raises StorageError: a file cannot be read or written.
    """
    compression = compression or merge.table.compression
    if merge.table.file_format is not FileFormat.ACID:
        rows_made, size_bytes = append_files(merge, options, compression)
        return MergeOutcome(output=merge.output, rows=rows_made, size_bytes=size_bytes)
    reader = BucketReader(merge, options)
    rows = _Remaining(reader)
    pieces = _row_pieces(rows) if merge.inserts else _delete_pieces(reader)
    with closing(pieces):
        first = next(pieces, None)
        if first is None:
            return MergeOutcome(deleted=rows.deleted)
        with publishing(
            join(merge.table.location, merge.output), options, mode=creation_mode(merge.sources, options)
        ) as file:
            bucket = _BucketFile(file, reader, compression)
            bucket.write(first, pieces, threads)
            size_bytes = bucket.finish(_INSERT if merge.inserts else _DELETE)
    return MergeOutcome(output=merge.output, rows=bucket.rows, deleted=rows.deleted, size_bytes=size_bytes)


@dataclass(frozen=True)
class _Piece:
    """The rows of one stripe.

    :param events: makes the identities of the rows, and the rows with the six ACID columns.
    """

    events: Callable[[], tuple[Keys, pa.Table]]

    def encoded(self, compression: str, filters: BloomFilters) -> tuple[Keys, list[Stripe]]:
        keys, table = self.events()
        return keys, encode(table, compression, filters=filters)


class _BucketFile:
    """A writer of one bucket file, with Hive's key index."""

    def __init__(self, file: BinaryIO, reader: BucketReader, compression: str) -> None:
        types = type_messages(_acid_type(reader.row_type))
        self._file = AssembledFile(file, types, compression=compression, calendar=reader.calendar)
        self._how = compression, reader.merge.table.filters
        self._index: list[str] = []

    @property
    def rows(self) -> int:
        """Return the number of written rows."""
        return self._file.rows

    def write(self, first: _Piece, others: Iterator[_Piece], threads: int) -> None:
        """Encode pieces in parallel, and append them in order."""
        with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="stripe") as workers:
            encoding: deque[Future[tuple[Keys, list[Stripe]]]] = deque()
            piece: _Piece | None = first
            while piece is not None or encoding:
                if piece is not None:
                    encoding.append(workers.submit(piece.encoded, *self._how))
                if piece is None or len(encoding) > threads:
                    self._add(*encoding.popleft().result())
                piece = None if piece is None else next(others, None)

    def finish(self, operation: int) -> int:
        """Write the tail with the metadata of ``OrcRecordUpdater``; return the file's length in bytes."""
        events = [0, 0, 0]
        events[operation] = self.rows
        return self._file.finish(
            {
                "hive.acid.key.index": "".join(self._index).encode(),
                "hive.acid.stats": ",".join(map(str, events)).encode(),
                "hive.acid.version": b"2",
            }
        )

    def _add(self, keys: Keys, stripes: Iterable[Stripe]) -> None:
        row_count = 0
        for stripe in stripes:
            self._file.add(stripe)
            row_count += stripe.rows
            self._index.append(",".join(map(str, keys.at(row_count - 1))) + ";")


class _Remaining:
    """An iterable of the rows that are not deleted.

    :param reader: reads the rows and the delete events.
    """

    def __init__(self, reader: BucketReader) -> None:
        self._reader = reader
        self.deleted = 0

    def __iter__(self) -> Iterator[Rows]:
        with ExitStack() as opened:
            streams = [opened.enter_context(closing(stream)) for stream in self._reader.delete_streams()]
            for rows in self._reader.rows():
                last = rows.keys.at(-1)
                mask = kept(rows.keys, [events.keys for stream in streams for events in stream.take(last)])
                if mask is None:
                    yield rows
                    continue
                self.deleted += int(len(mask) - mask.sum())
                if mask.any():
                    yield Rows(rows.keys.where(mask), rows.row.filter(pa.array(mask)))


def _row_pieces(rows: Iterable[Rows]) -> Generator[_Piece, None, None]:
    buffered: list[Rows] = []
    count = size_bytes = 0
    for part in rows:
        buffered.append(part)
        count += len(part.keys)
        size_bytes += part.row.nbytes
        if count >= STRIPE_ROWS or size_bytes >= STRIPE_BYTES:
            yield _insert_piece(buffered)
            buffered, count, size_bytes = [], 0, 0
    if buffered:
        yield _insert_piece(buffered)


def _insert_piece(parts: list[Rows]) -> _Piece:
    def events() -> tuple[Keys, pa.Table]:
        keys = joined_keys([part.keys for part in parts])
        row = pa.chunked_array([chunk for part in parts for chunk in part.row.chunks])
        return keys, _events(_INSERT, keys, _of_runs(keys, keys.write_ids), row)

    return _Piece(events)


def _delete_pieces(reader: BucketReader) -> Generator[_Piece, None, None]:
    buffered: list[DeleteEvents] = []
    count = 0
    for events in _merged_deletes(reader):
        buffered.append(events)
        count += len(events.keys)
        if count >= STRIPE_ROWS:
            yield _delete_piece(buffered, reader.arrow)
            buffered, count = [], 0
    if buffered:
        yield _delete_piece(buffered, reader.arrow)


def _merged_deletes(reader: BucketReader) -> Iterator[DeleteEvents]:
    """Merge the events of delete files, each of which is in order."""
    with ExitStack() as opened:
        streams = [opened.enter_context(closing(stream)) for stream in reader.delete_streams()]
        while chunks := [chunk for stream in streams if (chunk := stream.chunk()) is not None]:
            last = min(chunk.keys.at(-1) for chunk in chunks)
            taken = [events for stream in streams for events in stream.take(last)]
            keys = joined_keys([part.keys for part in taken])
            current = np.concatenate([part.current for part in taken])
            yield DeleteEvents(*in_order(keys, current))


def _delete_piece(parts: list[DeleteEvents], row_type: pa.DataType) -> _Piece:
    def events() -> tuple[Keys, pa.Table]:
        keys = joined_keys([part.keys for part in parts])
        current = np.concatenate([part.current for part in parts])
        return keys, _events(_DELETE, keys, pa.array(current), pa.nulls(len(keys), row_type))

    return _Piece(events)


def _events(operation: int, keys: Keys, current: pa.Array, row: pa.Array | pa.ChunkedArray) -> pa.Table:
    columns = {
        "operation": pa.RunEndEncodedArray.from_arrays([len(keys)], pa.array([operation], pa.int32())),
        "originalTransaction": _of_runs(keys, keys.write_ids),
        "bucket": _of_runs(keys, keys.buckets.astype(np.int32)),
        "rowId": pa.array(keys.row_id),
        "currentTransaction": current,
        "row": row,
    }
    return pa.table(columns)


def _of_runs(keys: Keys, values: Integers) -> pa.RunEndEncodedArray:
    return pa.RunEndEncodedArray.from_arrays(pa.array(keys.ends, pa.int32()), pa.array(values))


def _acid_type(row: HiveType) -> HiveType:
    integer, bigint = HiveType(name="int"), HiveType(name="bigint")
    return HiveType(
        name="struct",
        fields=(
            Field("operation", integer),
            Field("originalTransaction", bigint),
            Field("bucket", integer),
            Field("rowId", bigint),
            Field("currentTransaction", bigint),
            Field("row", row),
        ),
    )

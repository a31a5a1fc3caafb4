"""Reads the rows and delete events of one bucket, batch by batch in the order of their identities.

Every file of an ACID table is sorted by (write id, bucket property, row id). So are the concatenated files of
a bucket, because deltas of different write ids are disjoint and statements are part of the bucket property.
Delete files overlap; they are read in parallel, each only as far as the rows were read. So the memory does
not depend on the size of the table.
"""

from __future__ import annotations

import io
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from airflow_hive_federation.acid.rewrite import ACID_COLUMNS
from airflow_hive_federation.acid.side_files import read_flushed_length
from airflow_hive_federation.compaction.keys import Integers, Keys, Mask
from airflow_hive_federation.compaction.plan import BucketMerge, MergeInput
from airflow_hive_federation.compaction.read_ahead import ReadAhead, entered_ahead
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.types import Column, Field, HiveType
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.orc.arrow_columns import WIDE_NANOSECONDS, arrow_type, conforming, conforms
from airflow_hive_federation.orc.assembly import HYBRID, PROLEPTIC
from airflow_hive_federation.orc.batches import Head, OrcBatches
from airflow_hive_federation.orc.nanosecond_times import has_nanosecond_times
from airflow_hive_federation.orc.tail import OrcTail, read_tail
from airflow_hive_federation.storage.filesystem import join, local_path, reading
from airflow_hive_federation.storage.options import StorageOptions

_BUCKET_VERSION = 0x20000000
_DELETE_COLUMNS = ["operation", "originalTransaction", "bucket", "rowId", "currentTransaction"]
_TABLE_ROWS = 128 * 1024
_TABLE_BYTES = 16 * 1024 * 1024
# Each file decodes in one thread, so reading ahead keeps more cores busy.
_FILES_AHEAD, _TABLES_AHEAD = 1, 2


@dataclass(frozen=True)
class Rows:
    """A group of rows with their identities.

    :param keys: identities of the rows.
    :param row: structs of the table's columns.
    """

    keys: Keys
    row: pa.ChunkedArray


@dataclass(frozen=True)
class DeleteEvents:
    """A group of delete events.

    :param keys: identities of the deleted rows.
    :param current: write ids that deleted the rows.
    """

    keys: Keys
    current: Integers


class _Opened(NamedTuple):
    """An open file."""

    batches: OrcBatches
    constants: Mapping[str, int]
    """Maps ACID columns to the one number that all rows have, so that these columns need not be read."""
    calendar: int | None
    """Names the calendar of dates and timestamps, if the file states it."""


class _InsertFile(NamedTuple):
    """An open file with rows."""

    source: MergeInput
    schema: pa.Schema
    constants: Mapping[str, int]
    tables: Iterable[pa.Table]


class BucketReader:
    """A reader of the files of a :class:`BucketMerge`.

    :param merge: the files to read.
    """

    def __init__(self, merge: BucketMerge, options: StorageOptions | None = None) -> None:
        self.merge = merge
        self.options = options
        self.write_ids = ValidWriteIds.parse(merge.write_ids)
        self.row_type = row_type(merge)
        try:
            self.arrow = arrow_type(self.row_type, "ns")
        except KeyError as error:
            raise AcidFormatError(
                f"{merge.table.full_name} has a column of type {error}, which cannot be written here.",
                remedy="Compact it with Hive's own worker.",
                table=merge.table.name,
                partition=merge.table.partition,
            ) from error
        self._invalid = np.array(self.write_ids.invalid_ids, dtype=np.int64)
        self.calendar = HYBRID
        """Names the calendar of the rows' dates and timestamps, once rows were read."""

    def rows(self) -> Iterator[Rows]:
        """Yield the rows of visible write ids from all insert files, after a check of their order.

        :raises AcidFormatError: a file is truncated, has other columns, or is not in order.
        """
        last: tuple[int, int, int] | None = None
        positions: dict[tuple[int, int], int] = {}
        self._look_at_times()
        with closing(self._insert_files()) as files:
            for file in files:
                for rows in self._raw(file, positions) if file.source.raw else self._acid(file):
                    if len(rows.keys):
                        self._check_order(rows.keys, last, file.source)
                        last = rows.keys.at(-1)
                        yield rows

    def plain_rows(self) -> Iterator[pa.ChunkedArray]:
        """Yield the rows of an insert-only table's files, which have no identities.

        :raises AcidFormatError: a file is truncated, or has other columns than the table.
        """
        self._look_at_times()
        with closing(self._insert_files()) as files:
            for file in files:
                self._check_row(pa.struct(list(file.schema)), file.source)
                for rows in file.tables:
                    yield self._conforming(rows.to_struct_array(), file.source)

    def delete_streams(self) -> list[DeleteStream]:
        """Open all delete files; the caller closes each stream."""
        return [DeleteStream(self._delete_events(*source)) for source in self._with_rows(self.merge.deletes)]

    def wrong(self, source: MergeInput, why: str, remedy: str = "") -> AcidFormatError:
        """Return an error that names table, partition and file."""
        table = self.merge.table
        path = join(table.location, source.path)
        return AcidFormatError(
            f"{table.full_name}: {path} {why}",
            remedy=remedy or "Restore the file, or repair the table; nothing was changed by this compaction.",
            table=table.name,
            partition=table.partition,
            path=path,
        )

    def _look_at_times(self) -> None:
        """Find the calendar, and the columns with timestamps outside the range of nanoseconds.

        The tails of all files are read before the first row. If their calendars differ, the calendar is the
        proleptic one.
        """
        if not _has_times(self.row_type):
            return
        wide: set[int] = set()
        for source, length in self._with_rows(self.merge.inserts):
            with self._opened(source, length) as file:
                self.calendar = PROLEPTIC if PROLEPTIC in {self.calendar, file.calendar} else HYBRID
                row = file.batches.schema
                if tuple(row.names) == ACID_COLUMNS:
                    row = row.field("row").type
                wide |= {place for place, field in enumerate(row) if has_nanosecond_times(field.type)}
        fields = enumerate(self.row_type.fields)
        units = [
            (field.name, field.type, WIDE_NANOSECONDS if place in wide else "ns") for place, field in fields
        ]
        self.arrow = pa.struct([(name, arrow_type(kind, unit)) for name, kind, unit in units])

    def _insert_files(self) -> Generator[_InsertFile, None, None]:
        """Open the files with rows, and read the next file while the caller works on one."""
        opened = (self._insert_file(*source) for source in self._with_rows(self.merge.inserts))
        return entered_ahead(opened, _FILES_AHEAD)

    @contextmanager
    def _insert_file(self, source: MergeInput, length: int | None) -> Iterator[_InsertFile]:
        with self._opened(source, length) as file:
            columns = ACID_COLUMNS if file.constants else None
            tables = ReadAhead(_tables(self._batches(file, source, columns)), _TABLES_AHEAD)
            with closing(tables):
                yield _InsertFile(source, file.batches.schema, file.constants, tables)

    def _with_rows(self, sources: Sequence[MergeInput]) -> Iterator[tuple[MergeInput, int | None]]:
        """Yield the files that have rows, each with the length that counts; ``None`` for the whole file."""
        for source in sources:
            side_file = source.side_file and join(self.merge.table.location, source.side_file)
            length = read_flushed_length(side_file, self.options) if side_file else None
            if length != 0:
                yield source, length

    def _delete_events(self, source: MergeInput, length: int | None) -> Generator[DeleteEvents, None, None]:
        with self._opened(source, length) as file:
            self._check_acid(file.batches.schema, source)
            for events in _tables(self._batches(file, source, _DELETE_COLUMNS)):
                operation, current, keys = _identities(events, file.constants)
                if (operation != 2).any():
                    raise self.wrong(source, "holds other events than deletes.")
                visible = self._visible(current)
                if visible is None:
                    yield DeleteEvents(keys, current)
                elif visible.any():
                    yield DeleteEvents(keys.where(visible), current[visible])

    def _acid(self, file: _InsertFile) -> Iterator[Rows]:
        source = file.source
        self._check_acid(file.schema, source)
        self._check_row(file.schema.field("row").type, source)
        for rows in file.tables:
            operation, current, keys = _identities(rows, file.constants)
            if operation.any():
                raise self.wrong(
                    source,
                    "holds updates or deletes among its rows, as Hive 2 wrote them.",
                    "Run a major compaction with Hive 2 before.",
                )
            visible, row = self._visible(current), rows.column("row")
            if visible is not None:
                keys, row = keys.where(visible), row.filter(pa.array(visible))
            yield Rows(keys, self._conforming(row, source))

    def _raw(self, file: _InsertFile, positions: dict[tuple[int, int], int]) -> Iterator[Rows]:
        # Row ids count on through all files of the bucket (OrcRawRecordMerger.OriginalReaderPair).
        source = file.source
        self._check_row(pa.struct(list(file.schema)), source)
        group = (source.write_id, source.statement_id)
        bucket = _BUCKET_VERSION | self.merge.bucket << 16 | source.statement_id
        for rows in file.tables:
            count, first = rows.num_rows, positions.get(group, 0)
            positions[group] = first + count
            keys = Keys.of(
                _constant(source.write_id, count),
                _constant(bucket, count),
                np.arange(first, first + count, dtype=np.int64),
            )
            yield Rows(keys, self._conforming(rows.to_struct_array(), source))

    def _visible(self, write_ids: Integers) -> Mask | None:
        """Return a mask of the visible write ids; ``None`` if all are visible."""
        high = self.write_ids.high_watermark
        if not len(write_ids):
            return None
        if not len(self._invalid):
            return None if write_ids.max() <= high else write_ids <= high
        mask: Mask = (write_ids <= high) & ~np.isin(write_ids, self._invalid)
        return None if mask.all() else mask

    def _conforming(self, row: pa.ChunkedArray, source: MergeInput) -> pa.ChunkedArray:
        try:
            chunks = [conforming(chunk, self.arrow, by_position=True) for chunk in row.chunks]
            return pa.chunked_array(chunks, self.arrow)
        except AcidFormatError as error:
            raise self.wrong(source, f"has other columns than the table: {error.message}") from error

    def _check_acid(self, schema: pa.Schema, source: MergeInput) -> None:
        if tuple(schema.names) != ACID_COLUMNS:
            raise self.wrong(source, f"has the columns {', '.join(schema.names)}, not those of an ACID file.")

    def _check_row(self, have: pa.DataType, source: MergeInput) -> None:
        if not conforms(have, self.arrow, by_position=True):
            raise self.wrong(source, f"has other columns than the table: {have} cannot become {self.arrow}.")

    def _check_order(self, keys: Keys, last: tuple[int, int, int] | None, source: MergeInput) -> None:
        if (last is not None and keys.at(0) <= last) or not keys.is_ascending():
            raise self.wrong(
                source,
                "has rows that are not in the order of their ROW__IDs, or twice.",
                "Look for files that a failed task left beside those of its successor.",
            )

    def _batches(
        self, file: _Opened, source: MergeInput, columns: Sequence[str] | None
    ) -> Generator[pa.RecordBatch, None, None]:
        wanted = columns and [name for name in columns if name not in file.constants]
        with closing(file.batches.batches(wanted)) as batches:
            while True:
                try:
                    batch = next(batches, None)
                except (pa.ArrowException, OSError) as error:
                    raise self.wrong(source, f"cannot be read: {error}.") from error
                except AcidFormatError as error:
                    raise self.wrong(source, f"cannot be read: {error.message}", error.remedy) from error
                if batch is None:
                    return
                yield batch

    @contextmanager
    def _opened(self, source: MergeInput, length: int | None) -> Iterator[_Opened]:
        uri = join(self.merge.table.location, source.path)
        with reading(uri, self.options) as file:
            head: BinaryIO = file if length is None else io.BufferedReader(Head(file, length))
            try:
                tail = read_tail(head, uri)
                reader = OrcBatches(
                    (None if length is not None else local_path(uri)) or head,
                    uri,
                    tail,
                    size_bytes=source.size_bytes if length is None else length,
                    proleptic=self.calendar == PROLEPTIC,
                )
                is_acid = tuple(reader.schema.names) == ACID_COLUMNS
            except AcidFormatError as error:
                raise self.wrong(source, f"cannot be compacted: {error.message}", error.remedy) from error
            except (pa.ArrowException, OSError) as error:
                raise self.wrong(source, f"is not a whole ORC file: {error}.") from error
            yield _Opened(reader, _constants(tail) if is_acid else {}, tail.calendar)


class DeleteStream:
    """A stream of the delete events of one file, in ascending order.

    :param events: the file's events, ascending.
    """

    def __init__(self, events: Generator[DeleteEvents, None, None]) -> None:
        self._events = events
        self._chunk: DeleteEvents | None = None

    def take(self, last: tuple[int, int, int]) -> Iterator[DeleteEvents]:
        """Yield all remaining events up to and including ``last``."""
        while (chunk := self.chunk()) is not None:
            end = chunk.keys.up_to(last)
            if end == len(chunk.keys):
                self._chunk = None
                yield chunk
                continue
            self._chunk = DeleteEvents(chunk.keys.part(end, len(chunk.keys)), chunk.current[end:])
            if end:
                yield DeleteEvents(chunk.keys.part(0, end), chunk.current[:end])
            return

    def close(self) -> None:
        """Close the file."""
        self._events.close()

    def chunk(self) -> DeleteEvents | None:
        """Return the events that were read and not yet taken; ``None`` at the end of the file."""
        if self._chunk is None:
            self._chunk = next(self._events, None)
        return self._chunk


def row_type(merge: BucketMerge) -> HiveType:
    """Return the table's columns as one struct type."""
    columns = [Column.of(name, kind) for name, kind in merge.table.columns]
    return HiveType(name="struct", fields=tuple(Field(column.name, column.type) for column in columns))


def _tables(batches: Iterable[pa.RecordBatch]) -> Generator[pa.Table, None, None]:
    """Combine batches, because handling the identities takes as long for one batch as for many."""
    buffered: list[pa.RecordBatch] = []
    count = size_bytes = 0
    for batch in batches:
        buffered.append(batch)
        count += batch.num_rows
        size_bytes += batch.nbytes
        if count >= _TABLE_ROWS or size_bytes >= _TABLE_BYTES:
            yield pa.Table.from_batches(buffered)
            buffered, count, size_bytes = [], 0, 0
    if buffered:
        yield pa.Table.from_batches(buffered)


def _constants(tail: OrcTail) -> dict[str, int]:
    """Return the ACID columns that hold one number only, except that of row ids, which is always read."""
    names = (name for name in _DELETE_COLUMNS if name != "rowId")
    numbers = {name: 1 + ACID_COLUMNS.index(name) for name in names}
    return {name: tail.constants[number] for name, number in numbers.items() if number in tail.constants}


def _identities(rows: pa.Table, constants: Mapping[str, int]) -> tuple[Integers, Integers, Keys]:
    """Return the operations of events, the write ids that made them, and the identities of their rows."""

    def column(name: str) -> Integers:
        if name in constants:
            return _constant(constants[name], rows.num_rows)
        array: Integers = rows.column(name).to_numpy().astype(np.int64, copy=False)
        return array

    keys = Keys.of(column("originalTransaction"), column("bucket"), column("rowId"))
    return column("operation"), column("currentTransaction"), keys


def _constant(number: int, count: int) -> Integers:
    """Return an array of equal numbers that takes the memory of one number."""
    return np.broadcast_to(np.int64(number), count)


def _has_times(hive: HiveType) -> bool:
    children = [*hive.children, *(field.type for field in hive.fields)]
    return hive.name == "date" or hive.name.startswith("timestamp") or any(map(_has_times, children))

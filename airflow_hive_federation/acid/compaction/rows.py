"""Rows and delete events of one bucket, read batch by batch in the order of their identities.

Every file of an ACID table is sorted by (write id, bucket property, row id), and so are the files of a bucket
after each other, because deltas of different write ids are disjoint and statements are part of the bucket
property. Delete files overlap; they are read side by side, each only as far as the rows have come. So what is
held in memory does not depend on the size of the table.
"""

from __future__ import annotations

import io
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from airflow_hive_federation.acid.arrow_columns import arrow_type, conforming, conforms
from airflow_hive_federation.acid.compaction.plan import BucketMerge, MergeInput
from airflow_hive_federation.acid.orc.assembly import HYBRID, PROLEPTIC
from airflow_hive_federation.acid.orc.batches import Head, OrcBatches
from airflow_hive_federation.acid.orc.tail import OrcTail, read_tail
from airflow_hive_federation.acid.read_ahead import ReadAhead, entered_ahead
from airflow_hive_federation.acid.rewrite import ACID_COLUMNS
from airflow_hive_federation.acid.side_files import read_flushed_length
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.types import Column, Field, HiveType
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.storage.filesystem import join, local_path, reading

_BUCKET_VERSION = 0x20000000
_DELETE_COLUMNS = ["operation", "originalTransaction", "bucket", "rowId", "currentTransaction"]
_NANOSECOND_MILLIS = (-(2**63) // 10**6, 2**63 // 10**6)
_TABLE_ROWS = 128 * 1024
_TABLE_BYTES = 16 * 1024 * 1024
# So that there is something to do for every core: files decode in one thread each.
_FILES_AHEAD, _TABLES_AHEAD = 1, 2

Integers = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Keys:
    """Identities of rows, ascending.

    :param write_id: write id that inserted them.
    :param bucket: bucket property.
    :param row_id: number in that write id, bucket and statement.
    """

    write_id: Integers
    bucket: Integers
    row_id: Integers

    def __len__(self) -> int:
        return len(self.write_id)

    def at(self, index: int) -> tuple[int, int, int]:
        """One identity."""
        return int(self.write_id[index]), int(self.bucket[index]), int(self.row_id[index])

    def part(self, start: int, end: int) -> Keys:
        """A slice."""
        return Keys(self.write_id[start:end], self.bucket[start:end], self.row_id[start:end])

    def where(self, mask: Mask | Integers) -> Keys:
        """Those a mask, or their places, say."""
        return Keys(self.write_id[mask], self.bucket[mask], self.row_id[mask])

    def up_to(self, key: tuple[int, int, int]) -> int:
        """How many are not above ``key``."""
        start, end = 0, len(self)
        for column, value in zip((self.write_id, self.bucket, self.row_id), key, strict=True):
            part = column[start:end]
            end = start + int(np.searchsorted(part, value, side="right"))
            start += int(np.searchsorted(part, value, side="left"))
        # Below the equal ones, or after them if there are some.
        return end


@dataclass(frozen=True)
class Rows:
    """Some rows with their identities.

    :param row: structs of the table's columns.
    """

    keys: Keys
    row: pa.ChunkedArray


@dataclass(frozen=True)
class DeleteEvents:
    """Delete events.

    :param keys: the deleted rows.
    :param current: write ids that deleted them.
    """

    keys: Keys
    current: Integers


class _InsertFile(NamedTuple):
    """A file with rows, being read."""

    source: MergeInput
    schema: pa.Schema
    tables: Iterable[pa.Table]


class BucketReader:
    """Reads the files of a :class:`BucketMerge`.

    :param merge: what to read.
    :param options: storage options.
    """

    def __init__(self, merge: BucketMerge, options: Mapping[str, Any] | None = None) -> None:
        self.merge = merge
        self.options = options
        self.write_ids = ValidWriteIds.parse(merge.write_ids)
        self.row_type = row_type(merge)
        self.calendar: int | None = None
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

    def rows(self) -> Iterator[Rows]:
        """Yield the rows of all insert files that are of visible write ids, checked to be in order.

        :raises AcidFormatError: a file is truncated, has other columns, or is not in order.
        """
        last: tuple[int, int, int] | None = None
        positions: dict[tuple[int, int], int] = {}
        with closing(self._insert_files()) as files:
            for one in files:
                for rows in self._raw(one, positions) if one.source.raw else self._acid(one):
                    if len(rows.keys):
                        self._check_order(rows.keys, last, one.source)
                        last = rows.keys.at(-1)
                        yield rows

    def plain_rows(self) -> Iterator[pa.ChunkedArray]:
        """Yield the rows of files that have no identities, those of an insert-only table.

        :raises AcidFormatError: a file is truncated, or has other columns than the table.
        """
        with closing(self._insert_files()) as files:
            for one in files:
                self._check_row(pa.struct(list(one.schema)), one.source)
                for rows in one.tables:
                    yield self._conforming(rows.to_struct_array(), one.source)

    def delete_streams(self) -> list[DeleteStream]:
        """Open the delete files side by side; close each when done."""
        return [DeleteStream(self._delete_events(*one)) for one in self._with_rows(self.merge.deletes)]

    def wrong(self, source: MergeInput, why: str, remedy: str = "") -> AcidFormatError:
        """An error that names table, partition and file."""
        table = self.merge.table
        path = join(table.location, source.path)
        return AcidFormatError(
            f"{table.full_name}: {path} {why}",
            remedy=remedy or "Restore the file, or repair the table; nothing was changed by this compaction.",
            table=table.name,
            partition=table.partition,
            path=path,
        )

    def _insert_files(self) -> Generator[_InsertFile, None, None]:
        """Files with rows, of which the next is read while one is worked on."""
        opened = (self._insert_file(*one) for one in self._with_rows(self.merge.inserts))
        return entered_ahead(opened, _FILES_AHEAD)

    @contextmanager
    def _insert_file(self, source: MergeInput, length: int | None) -> Iterator[_InsertFile]:
        with self._opened(source, length) as reader:
            tables = ReadAhead(_tables(self._batches(reader, source)), _TABLES_AHEAD)
            with closing(tables):
                yield _InsertFile(source, reader.schema, tables)

    def _with_rows(self, sources: Sequence[MergeInput]) -> Iterator[tuple[MergeInput, int | None]]:
        """Files that have rows yet, and how many bytes of each count; ``None`` for all."""
        for source in sources:
            side_file = source.side_file and join(self.merge.table.location, source.side_file)
            length = read_flushed_length(side_file, self.options) if side_file else None
            if length != 0:
                yield source, length

    def _delete_events(self, source: MergeInput, length: int | None) -> Generator[DeleteEvents, None, None]:
        with self._opened(source, length) as reader:
            self._check_acid(reader.schema, source)
            for events in _tables(self._batches(reader, source, _DELETE_COLUMNS)):
                current = _integers(events, "currentTransaction")
                visible = self._visible(current)
                if (_integers(events, "operation") != 2).any():
                    raise self.wrong(source, "holds other events than deletes.")
                keys = _keys(events)
                if visible is None:
                    yield DeleteEvents(keys, current)
                elif visible.any():
                    yield DeleteEvents(keys.where(visible), current[visible])

    def _acid(self, file: _InsertFile) -> Iterator[Rows]:
        source = file.source
        self._check_acid(file.schema, source)
        self._check_row(file.schema.field("row").type, source)
        for rows in file.tables:
            if _integers(rows, "operation").any():
                raise self.wrong(
                    source,
                    "holds updates or deletes among its rows, as Hive 2 wrote them.",
                    "Run a major compaction with Hive 2 before.",
                )
            visible = self._visible(_integers(rows, "currentTransaction"))
            seen = rows if visible is None else rows.filter(pa.array(visible))
            yield Rows(_keys(seen), self._conforming(seen.column("row"), source))

    def _raw(self, file: _InsertFile, positions: dict[tuple[int, int], int]) -> Iterator[Rows]:
        # Numbered by position, on through all files of the bucket (OrcRawRecordMerger.OriginalReaderPair).
        source = file.source
        self._check_row(pa.struct(list(file.schema)), source)
        group = (source.write_id, source.statement_id)
        bucket = _BUCKET_VERSION | self.merge.bucket << 16 | source.statement_id
        for rows in file.tables:
            count, first = rows.num_rows, positions.get(group, 0)
            positions[group] = first + count
            keys = Keys(
                np.full(count, source.write_id, np.int64),
                np.full(count, bucket, np.int64),
                np.arange(first, first + count, dtype=np.int64),
            )
            yield Rows(keys, self._conforming(rows.to_struct_array(), source))

    def _visible(self, write_ids: Integers) -> Mask | None:
        """Which are visible; ``None`` for all of them."""
        high = self.write_ids.high_watermark
        if not len(write_ids):
            return None
        if not len(self._invalid):
            return None if write_ids.max() <= high else write_ids <= high
        mask: Mask = (write_ids <= high) & ~np.isin(write_ids, self._invalid)
        return None if mask.all() else mask

    def _conforming(self, row: pa.ChunkedArray, source: MergeInput) -> pa.ChunkedArray:
        try:
            return pa.chunked_array([conforming(chunk, self.arrow) for chunk in row.chunks], self.arrow)
        except AcidFormatError as error:
            raise self.wrong(source, f"has other columns than the table: {error.message}") from error

    def _check_acid(self, schema: pa.Schema, source: MergeInput) -> None:
        if tuple(schema.names) != ACID_COLUMNS:
            raise self.wrong(source, f"has the columns {', '.join(schema.names)}, not those of an ACID file.")

    def _check_row(self, have: pa.DataType, source: MergeInput) -> None:
        if not conforms(have, self.arrow):
            raise self.wrong(source, f"has other columns than the table: {have} cannot become {self.arrow}.")

    def _check_order(self, keys: Keys, last: tuple[int, int, int] | None, source: MergeInput) -> None:
        if (last is not None and keys.at(0) <= last) or not _ascending(keys):
            raise self.wrong(
                source,
                "has rows that are not in the order of their ROW__IDs, or twice.",
                "Look for files that a failed task left beside those of its successor.",
            )

    def _batches(
        self, reader: OrcBatches, source: MergeInput, columns: Sequence[str] | None = None
    ) -> Generator[pa.RecordBatch, None, None]:
        with closing(reader.batches(columns)) as batches:
            while True:
                try:
                    batch = next(batches, None)
                except (pa.ArrowException, OSError) as error:
                    raise self.wrong(source, f"cannot be read: {error}.") from error
                if batch is None:
                    return
                yield batch

    @contextmanager
    def _opened(self, source: MergeInput, length: int | None) -> Iterator[OrcBatches]:
        uri = join(self.merge.table.location, source.path)
        with reading(uri, self.options) as file:
            head: BinaryIO = file if length is None else io.BufferedReader(Head(file, length))
            try:
                tail = read_tail(head, uri)
                self._check_tail(tail, source)
                reader = OrcBatches(
                    (None if length is not None else local_path(uri)) or head,
                    row_count=tail.row_count,
                    size_bytes=source.size_bytes if length is None else length,
                )
                _ = reader.schema
            except AcidFormatError as error:
                raise self.wrong(source, f"cannot be compacted: {error.message}", error.remedy) from error
            except (pa.ArrowException, OSError) as error:
                raise self.wrong(source, f"is not a whole ORC file: {error}.") from error
            yield reader

    def _check_tail(self, tail: OrcTail, source: MergeInput) -> None:
        bounds = tail.timestamp_millis
        if bounds and not _NANOSECOND_MILLIS[0] < bounds[0] <= bounds[1] < _NANOSECOND_MILLIS[1]:
            raise self.wrong(
                source,
                "has timestamps outside the years 1677 to 2262, which cannot be written here.",
                "Compact the table with Hive's own worker.",
            )
        if not _has_dates(self.row_type):
            return
        calendar = PROLEPTIC if tail.calendar == PROLEPTIC else HYBRID
        if self.calendar not in {None, calendar}:
            raise self.wrong(
                source,
                "counts its dates by another calendar than the files before it.",
                "Compact the table with Hive's own worker.",
            )
        self.calendar = calendar


class DeleteStream:
    """Delete events of one file, taken from the lowest up.

    :param events: the file's events, ascending.
    """

    def __init__(self, events: Generator[DeleteEvents, None, None]) -> None:
        self._events = events
        self._chunk: DeleteEvents | None = None

    def take(self, last: tuple[int, int, int]) -> Iterator[DeleteEvents]:
        """Take all events up to ``last``, which is included."""
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
        """What was read and not yet taken; ``None`` at the end."""
        if self._chunk is None:
            self._chunk = next(self._events, None)
        return self._chunk


def row_type(merge: BucketMerge) -> HiveType:
    """The table's columns as one struct."""
    columns = [Column.of(name, kind) for name, kind in merge.table.columns]
    return HiveType(name="struct", fields=tuple(Field(column.name, column.type) for column in columns))


def joined_keys(some: Sequence[Keys]) -> Keys:
    """Several identities after each other."""
    return Keys(*(np.concatenate(columns) for columns in zip(*map(_columns, some), strict=True)))


def kept(rows: Keys, deleted: Sequence[Keys]) -> Mask | None:
    """Which rows remain; ``None`` if all do.

    :param rows: ascending, without duplicates.
    :param deleted: in any order.
    """
    deleted = [one for one in deleted if len(one)]
    if not deleted or not len(rows):
        return None
    gone = joined_keys(deleted)
    mask = np.ones(len(rows), np.bool_)
    start = 0
    for end in _packable_ends(rows):
        part = rows.part(start, end)
        found = _positions(part, gone)
        mask[start:end][found] = False
        start = end
    return None if mask.all() else mask


def _columns(keys: Keys) -> tuple[Integers, Integers, Integers]:
    return keys.write_id, keys.bucket, keys.row_id


_MAX_SPAN = 2**31 - 1


def _packable_ends(rows: Keys) -> Iterator[int]:
    """Cut so that write ids of a part differ by less than 31 bits."""
    start = 0
    while start < len(rows):
        limit = int(rows.write_id[start]) + _MAX_SPAN
        start = int(np.searchsorted(rows.write_id, limit, side="left"))
        yield start


def _positions(rows: Keys, gone: Keys) -> Integers:
    """Where in ``rows`` the deleted ones are."""
    low, high = int(rows.write_id[0]), int(rows.write_id[-1])
    gone = gone.where((gone.write_id >= low) & (gone.write_id <= high))
    heads = _heads(rows, low)
    known = _group(rows.where(heads), low)
    others = _group(gone, low)
    found = []
    order = np.argsort(others, kind="stable")
    sorted_others = others[order]
    starts = np.searchsorted(sorted_others, known, side="left")
    ends = np.searchsorted(sorted_others, known, side="right")
    tails = np.concatenate((heads[1:], [len(rows)]))
    for index in np.flatnonzero(ends > starts):
        head, tail = heads[index], tails[index]
        wanted = gone.row_id[order[starts[index] : ends[index]]]
        have = rows.row_id[head:tail]
        if have[-1] - have[0] == len(have) - 1:
            # None is missing, as in most files: a row's number tells its place.
            at = wanted - have[0]
            found.append(at[(at >= 0) & (at < len(have))] + head)
            continue
        at = np.searchsorted(have, wanted)
        inside = at < len(have)
        at, wanted = at[inside], wanted[inside]
        found.append(at[have[at] == wanted] + head)
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _heads(rows: Keys, low: int) -> Integers:
    """Where in ``rows`` those of a write id and bucket property begin."""
    begin: Integers = np.zeros(1, np.int64)
    if rows.at(0)[:2] == rows.at(-1)[:2]:
        return begin
    return np.concatenate((begin, np.flatnonzero(np.diff(_group(rows, low))) + 1))


def _group(keys: Keys, low: int) -> Integers:
    packed: Integers = (keys.write_id - low) << 32 | (keys.bucket & 0xFFFFFFFF)
    return packed


def _ascending(keys: Keys) -> bool:
    # The rows of one statement, which is what most files hold.
    if (keys.write_id == keys.write_id[0]).all() and (keys.bucket == keys.bucket[0]).all():
        return bool((keys.row_id[1:] > keys.row_id[:-1]).all())
    write_id, bucket, row_id = (np.diff(column) for column in _columns(keys))
    good = (write_id > 0) | ((write_id == 0) & ((bucket > 0) | ((bucket == 0) & (row_id > 0))))
    return bool(good.all())


def _tables(batches: Iterable[pa.RecordBatch]) -> Generator[pa.Table, None, None]:
    """Put batches together: what is done to identities takes as long for one batch as for many."""
    some: list[pa.RecordBatch] = []
    count = size_bytes = 0
    for batch in batches:
        some.append(batch)
        count += batch.num_rows
        size_bytes += batch.nbytes
        if count >= _TABLE_ROWS or size_bytes >= _TABLE_BYTES:
            yield pa.Table.from_batches(some)
            some, count, size_bytes = [], 0, 0
    if some:
        yield pa.Table.from_batches(some)


def _keys(rows: pa.Table) -> Keys:
    return Keys(*(_integers(rows, name) for name in ("originalTransaction", "bucket", "rowId")))


def _integers(rows: pa.Table, name: str) -> Integers:
    array: Integers = rows.column(name).to_numpy().astype(np.int64, copy=False)
    return array


def _has_dates(hive: HiveType) -> bool:
    children = [*hive.children, *(field.type for field in hive.fields)]
    return hive.name == "date" or hive.name.startswith("timestamp") or any(map(_has_dates, children))

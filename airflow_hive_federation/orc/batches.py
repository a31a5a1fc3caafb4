"""Reads ORC files in batches of bounded size.

pyarrow's ``ORCFile`` reads whole stripes, and a stripe of rows that compress well, such as delete events, may
hold millions of rows. pyarrow's dataset scanner reads files batch by batch in a thread of its own, a bounded
number of batches ahead.
"""

from __future__ import annotations

import io
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from airflow_hive_federation.model.protobuf import fields_of, number_of
from airflow_hive_federation.orc.arrow_columns import orc_width
from airflow_hive_federation.orc.assembly import PROLEPTIC
from airflow_hive_federation.orc.calendars import proleptic_dates
from airflow_hive_federation.orc.nanosecond_times import NANOSECOND_TIME, microseconds, proleptic_times
from airflow_hive_federation.orc.nested import with_leaves
from airflow_hive_federation.orc.tail import INSTANT_KIND, OrcTail, end_with_types
from airflow_hive_federation.orc.wide_timestamps import WideTimestamps, types_as_numbers, wide_columns

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from pyarrow import dataset


# Arrow decodes up to 32 batches ahead (kDefaultBackgroundMaxQ), so batches are small.
_BATCH_ROWS = 16_384
_SMALLEST_BATCH_ROWS = 128
_BATCH_BYTES = 512 * 1024


class OrcBatches:
    """The batches of one ORC file.

    :param file: path of the file, or the file open for reading and seeking.
    :param name: the file's name for error messages.
    :param tail: the file's tail.
    :param size_bytes: the file's length in bytes; long rows make smaller batches.
    :param nanoseconds: timestamps outside the range of Arrow's nanoseconds have the type
        :data:`.nanosecond_times.NANOSECOND_TIME`; otherwise they are microseconds.
    :param proleptic: dates and timestamps before 15 October 1582 are converted to the proleptic calendar.
    """

    def __init__(
        self,
        file: str | BinaryIO,
        name: str,
        tail: OrcTail,
        *,
        size_bytes: int,
        nanoseconds: bool = True,
        proleptic: bool = False,
    ) -> None:
        self._file = file
        self._name = name
        self._tail = tail
        self._wide = wide_columns(tail)
        self._nanoseconds = nanoseconds
        # A file without a calendar in its tail has the Julian one (OrcConf.PROLEPTIC_GREGORIAN_DEFAULT).
        self._from_julian = proleptic and tail.calendar != PROLEPTIC
        fitting = _BATCH_BYTES * tail.row_count // max(1, size_bytes)
        self._batch_rows = min(_BATCH_ROWS, max(_SMALLEST_BATCH_ROWS, fitting))

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the schema of the file's columns.

        :raises pyarrow.ArrowException: if it is not an ORC file, or has types that pyarrow does not know.
        """
        schema = self._fragment.physical_schema
        if not self._wide:
            return schema
        pairs = zip(schema, self._numbers.values(), strict=True)
        made = [with_leaves(pa.array([], field.type), self._nothing, number) for field, number in pairs]
        return pa.schema([field.with_type(array.type) for field, array in zip(schema, made, strict=True)])

    def batches(self, columns: Sequence[str] | None = None) -> Generator[pa.RecordBatch, None, None]:
        """Yield the file's rows in order; a batch does not extend over the end of a stripe.

        :param columns: names of the columns to read; ``None`` means all.
        :raises pyarrow.ArrowException: if the file is damaged.
        :raises AcidFormatError: if its timestamps are damaged, or of an unsupported kind.
        """
        schema = self._fragment.physical_schema
        names = schema.names if columns is None else columns
        numbers = [self._numbers[name] for name in names]
        spans = [
            range(first, first + orc_width(schema.field(name).type))
            for first, name in zip(numbers, names, strict=True)
        ]
        wide = frozenset(number for number in self._wide if any(number in span for span in spans))
        rows = (
            self._wide_timestamps(columns, numbers, wide) if wide else self._scanned(self._fragment, columns)
        )
        if not (self._from_julian or wide):
            yield from rows
            return
        for batch in rows:
            pairs = zip(batch.columns, numbers, strict=True)
            arrays = [with_leaves(array, self._finished, number) for array, number in pairs]
            yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    @cached_property
    def _fragment(self) -> dataset.Fragment:
        return _fragment(self._file)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        schema = self._fragment.physical_schema
        widths = (orc_width(kind) for kind in schema.types)
        return dict(zip(schema.names, accumulate(widths, initial=1), strict=False))

    def _wide_timestamps(
        self, columns: Sequence[str] | None, numbers: Sequence[int], wide: frozenset[int]
    ) -> Generator[pa.RecordBatch, None, None]:
        with ExitStack() as opened:
            file = self._file
            if isinstance(file, str):
                file = opened.enter_context(Path(file).open("rb"))
            start, end = end_with_types(file, self._name, types_as_numbers(self._tail, wide))
            # The scanner's thread reads the same file, hence the lock.
            lock = Lock()
            as_numbers, stripes = (io.BufferedReader(Head(file, start, rest, lock)) for rest in (end, b""))
            times = WideTimestamps(stripes, self._tail, wide, numbers)
            yield from times.put_together(self._scanned(_fragment(as_numbers), columns))

    def _scanned(self, fragment: dataset.Fragment, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        # Only the background thread reads ahead.
        yield from fragment.scanner(
            columns=None if columns is None else list(columns),
            batch_size=self._batch_rows,
            batch_readahead=0,
            fragment_readahead=0,
            use_threads=False,
            cache_metadata=False,
        ).to_batches()

    def _nothing(self, empty: pa.Array, number: int) -> pa.Array:
        return self._finished(pa.array([], NANOSECOND_TIME) if number in self._wide else empty, number)

    def _finished(self, array: pa.Array, number: int) -> pa.Array:
        if self._from_julian and pa.types.is_date32(array.type):
            return proleptic_dates(array)
        if array.type != NANOSECOND_TIME:
            return array
        times = proleptic_times(array) if self._from_julian else array
        if self._nanoseconds:
            return times
        is_instant = number_of(fields_of(self._tail.types[number]), 1) == INSTANT_KIND
        return microseconds(times).cast(pa.timestamp("us", "UTC" if is_instant else None))


def _fragment(file: str | BinaryIO) -> dataset.Fragment:
    # It imports pandas, which takes a second of processor time.
    from pyarrow import dataset, fs

    local = fs.LocalFileSystem() if isinstance(file, str) else None
    return dataset.OrcFileFormat().make_fragment(file, filesystem=local)


class Head(io.RawIOBase):
    """A reader of the first bytes of a longer file.

    :param file: the whole file.
    :param length: the number of bytes that count.
    :param end: bytes that follow them.
    :param lock: lock to hold while the file is read.
    """

    def __init__(
        self,
        file: BinaryIO,
        length: int,
        end: bytes = b"",
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self._file = file
        self._length = length
        self._end = end
        self._lock = lock or nullcontext()
        self._at = 0

    def readable(self) -> bool:
        """Return true: the head can be read."""
        return True

    def seekable(self) -> bool:
        """Return true: the head can be read from any place."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a place; the end includes the bytes that follow the head."""
        end = self._length + len(self._end)
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: end}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill the buffer from the head, at most to its end, or from the bytes that follow it."""
        room = memoryview(buffer)
        if self._at >= self._length:
            at = self._at - self._length
            content = self._end[at : at + len(room)]
        else:
            with self._lock:
                self._file.seek(self._at)
                content = self._file.read(min(len(room), self._length - self._at))
        room[: len(content)] = content
        self._at += len(content)
        return len(content)

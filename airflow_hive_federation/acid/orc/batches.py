"""ORC files read in batches of bounded size.

pyarrow's ``ORCFile`` reads whole stripes, and a stripe of rows that compress well, such as delete events, may
hold millions of them. Its dataset scanner reads files batch by batch, a bounded number of them ahead, in a
thread of its own.
"""

from __future__ import annotations

import io
from collections.abc import Generator, Sequence
from functools import cached_property
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow import dataset, fs

# Arrow decodes up to 32 batches ahead (kDefaultBackgroundMaxQ), so these are small.
_BATCH_ROWS = 16_384
_SMALLEST_BATCH_ROWS = 128
_BATCH_BYTES = 512 * 1024


class OrcBatches:
    """One file.

    :param file: its path, or the file open for reading and seeking.
    :param row_count: its rows, as its tail says.
    :param size_bytes: its length in bytes; long rows make smaller batches.
    """

    def __init__(self, file: str | BinaryIO, *, row_count: int, size_bytes: int) -> None:
        local = fs.LocalFileSystem() if isinstance(file, str) else None
        self._fragment = dataset.OrcFileFormat().make_fragment(file, filesystem=local)
        fitting = _BATCH_BYTES * row_count // max(1, size_bytes)
        self._batch_rows = min(_BATCH_ROWS, max(_SMALLEST_BATCH_ROWS, fitting))

    @cached_property
    def schema(self) -> pa.Schema:
        """Its columns.

        :raises pyarrow.ArrowException: it is no ORC file, or has types that pyarrow does not know.
        """
        return self._fragment.physical_schema

    def batches(self, columns: Sequence[str] | None = None) -> Generator[pa.RecordBatch, None, None]:
        """Yield its rows in order; a batch does not reach over the end of a stripe.

        :param columns: names of the columns wanted; ``None`` means all.
        :raises pyarrow.ArrowException: it is damaged.
        """
        # No fragments and batches beside those of the background thread.
        yield from self._fragment.scanner(
            columns=None if columns is None else list(columns),
            batch_size=self._batch_rows,
            batch_readahead=0,
            fragment_readahead=0,
            use_threads=False,
            cache_metadata=False,
        ).to_batches()


class Head(io.RawIOBase):
    """The first bytes of a file that is longer.

    :param file: the whole file.
    :param length: how many bytes count.
    """

    def __init__(self, file: BinaryIO, length: int) -> None:
        self._file = file
        self._length = length
        self._at = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; the end is that of the head."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read what fits, at most to the head's end."""
        count = max(0, min(len(buffer), self._length - self._at))
        self._file.seek(self._at)
        content = self._file.read(count)
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)

"""ORC files with timestamps that pyarrow's writer would store wrongly; see :mod:`.early_timestamps`."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import orc

from airflow_hive_federation.acid.orc.assembly import PROLEPTIC, AssembledFile, encode, stripes_of
from airflow_hive_federation.acid.orc.timestamps import has_unstorable_timestamp

_STRIDE_ROWS = 10_000  # Hive's row index stride
_STRIPE_BYTES = 64 * 1024 * 1024


class OrcFileWriter:
    """Writes a file by pyarrow's writer, and goes on stripe by stripe once that would store values wrongly.

    :param path: the file, which is not there or empty.
    :param types: gives serialized ``Type`` messages; asked only if they are needed.
    :param compression: of :data:`.assembly.COMPRESSIONS`.
    """

    def __init__(self, path: Path, types: Callable[[], Sequence[bytes]], compression: str) -> None:
        self._path, self._types, self._compression = path, types, compression
        self._writer: orc.ORCWriter | AssemblingWriter | None = None

    def write(self, rows: pa.Table) -> None:
        """Add rows.

        :raises AcidFormatError: some timestamp cannot be stored.
        """
        if not isinstance(self._writer, AssemblingWriter) and any(
            has_unstorable_timestamp(chunk) for column in rows.columns for chunk in column.chunks
        ):
            self.close()
            self._writer = AssemblingWriter(self._path, self._types(), self._compression)
        if self._writer is None:
            self._writer = orc.ORCWriter(
                str(self._path), compression=self._compression, row_index_stride=_STRIDE_ROWS
            )
        self._writer.write(rows)

    def close(self) -> None:
        """Write the tail."""
        if self._writer is not None:
            self._writer.close()


class AssemblingWriter:
    """Writes a file stripe by stripe, and goes on where another writer has ended.

    :param path: the file; what is in it, if it is there, is a whole ORC file and stays.
    :param types: serialized ``Type`` messages.
    :param compression: of :data:`.assembly.COMPRESSIONS`.
    """

    def __init__(self, path: Path, types: Sequence[bytes], compression: str) -> None:
        self._compression = compression
        self._tables: list[pa.Table] = []
        self._size_bytes = 0
        begun = path.with_name(f"{path.name}.begun")
        has_begun = path.exists() and path.stat().st_size > 0
        if has_begun:
            path.rename(begun)
        self._file = path.open("wb")
        self._made = AssembledFile(self._file, types, compression=compression, calendar=PROLEPTIC)
        if has_begun:
            with begun.open("rb") as file:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            begun.unlink()
            for stripe in stripes_of(memoryview(content)):
                self._made.add(stripe)

    def write(self, rows: pa.Table) -> None:
        """Add rows.

        :raises AcidFormatError: some timestamp cannot be stored.
        """
        self._tables.append(rows)
        self._size_bytes += rows.nbytes
        if self._size_bytes >= _STRIPE_BYTES:
            self._encode()

    def close(self) -> None:
        """Write the tail.

        :raises AcidFormatError: some timestamp cannot be stored.
        """
        with self._file:
            if self._tables:
                self._encode()
            self._made.finish({})

    def _encode(self) -> None:
        for stripe in encode(pa.concat_tables(self._tables), self._compression):
            self._made.add(stripe)
        self._tables, self._size_bytes = [], 0

"""ORC files with timestamps that pyarrow's writer would store wrongly; see :mod:`.orc_early_timestamps`."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from airflow_hive_federation.acid.orc_assembly import AssembledFile, encode, stripes_of
from airflow_hive_federation.acid.write_columns import PROLEPTIC

_STRIPE_BYTES = 64 * 1024 * 1024


class AssemblingWriter:
    """Writes a file stripe by stripe, and goes on where another writer has ended.

    :param path: the file; what is in it, if it is there, is a whole ORC file and stays.
    :param types: serialized ``Type`` messages.
    :param compression: of :data:`.orc_assembly.COMPRESSIONS`.
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
        """Write the tail."""
        if self._tables:
            self._encode()
        self._made.finish({})
        self._file.close()

    def _encode(self) -> None:
        for stripe in encode(pa.concat_tables(self._tables), self._compression):
            self._made.add(stripe)
        self._tables, self._size_bytes = [], 0

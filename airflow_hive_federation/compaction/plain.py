"""Making one file of an insert-only table: its files after each other, in their own format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from airflow_hive_federation.compaction.parquet_files import append_parquet
from airflow_hive_federation.compaction.plan import BucketMerge, FileFormat
from airflow_hive_federation.compaction.rows import BucketReader
from airflow_hive_federation.orc.assembly import AssembledFile, encode, type_messages
from airflow_hive_federation.storage.filesystem import join, reading
from airflow_hive_federation.storage.permissions import creation_mode
from airflow_hive_federation.storage.publishing import publishing

_COPY_BYTES = 8 * 1024 * 1024
_STRIPE_BYTES = 64 * 1024 * 1024


def append_files(merge: BucketMerge, options: Mapping[str, Any] | None, compression: str) -> tuple[int, int]:
    """Make the file; return its rows (0 for text, which is not looked into) and its length in bytes.

    :raises AcidFormatError: a file is not whole, or its columns are not those of the others.
    :raises StorageError: a file cannot be read or written.
    """
    append = {FileFormat.ORC: _orc, FileFormat.PARQUET: _parquet, FileFormat.TEXT: _text}
    return append[merge.table.file_format](merge, options, compression)


def _orc(merge: BucketMerge, options: Mapping[str, Any] | None, compression: str) -> tuple[int, int]:
    reader = BucketReader(merge, options)
    tables = _chunks(reader.plain_rows())
    first = next(tables, None)
    if first is None:
        return 0, 0
    with publishing(
        join(merge.table.location, merge.output), options, mode=creation_mode(merge.sources, options)
    ) as file:
        made = AssembledFile(
            file,
            type_messages(reader.row_type),
            compression=compression,
            calendar=reader.calendar,
        )
        table: pa.Table | None = first
        while table is not None:
            for stripe in encode(table, compression, filters=merge.table.filters):
                made.add(stripe)
            table = next(tables, None)
        return made.rows, made.finish({})


def _chunks(rows: Iterator[pa.ChunkedArray]) -> Iterator[pa.Table]:
    some: list[pa.Table] = []
    size_bytes = 0
    for one in rows:
        if len(one):
            some.append(pa.Table.from_struct_array(one))
            size_bytes += one.nbytes
        if size_bytes >= _STRIPE_BYTES:
            yield pa.concat_tables(some)
            some, size_bytes = [], 0
    if some:
        yield pa.concat_tables(some)


def _parquet(merge: BucketMerge, options: Mapping[str, Any] | None, compression: str) -> tuple[int, int]:
    del compression  # the first file's
    return append_parquet(merge, options)


def _text(merge: BucketMerge, options: Mapping[str, Any] | None, compression: str) -> tuple[int, int]:
    del compression
    written = 0
    with publishing(
        join(merge.table.location, merge.output), options, mode=creation_mode(merge.sources, options)
    ) as file:
        for source in merge.inserts:
            last = b"\n"
            with reading(join(merge.table.location, source.path), options) as content:
                while chunk := content.read(_COPY_BYTES):
                    file.write(chunk)
                    written += len(chunk)
                    last = chunk[-1:]
            if last != b"\n":
                file.write(b"\n")
                written += 1
    return 0, written

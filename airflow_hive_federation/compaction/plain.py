"""Merges files of an insert-only table into one by appending their rows in their own format."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from airflow_hive_federation.compaction.parquet_files import append_parquet
from airflow_hive_federation.compaction.plan import BucketMerge, FileFormat
from airflow_hive_federation.compaction.rows import BucketReader
from airflow_hive_federation.orc.assembly import AssembledFile, encode, type_messages
from airflow_hive_federation.storage.filesystem import join, reading
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.permissions import creation_mode
from airflow_hive_federation.storage.publishing import publishing

_COPY_BYTES = 8 * 1024 * 1024
_STRIPE_BYTES = 64 * 1024 * 1024


def append_files(merge: BucketMerge, options: StorageOptions | None, compression: str) -> tuple[int, int]:
    """Write the merged file; return its row count (0 for text, which is not parsed) and its length in bytes.

    :raises AcidFormatError: a file is not whole, or its columns are not those of the others.
    :raises StorageError: a file cannot be read or written.
    """
    append = {FileFormat.ORC: _orc, FileFormat.PARQUET: _parquet, FileFormat.TEXT: _text}
    return append[merge.table.file_format](merge, options, compression)


def _orc(merge: BucketMerge, options: StorageOptions | None, compression: str) -> tuple[int, int]:
    reader = BucketReader(merge, options)
    tables = _chunks(reader.plain_rows())
    first = next(tables, None)
    if first is None:
        return 0, 0
    with publishing(
        join(merge.table.location, merge.output), options, mode=creation_mode(merge.sources, options)
    ) as file:
        assembled = AssembledFile(
            file,
            type_messages(reader.row_type),
            compression=compression,
            calendar=reader.calendar,
        )
        table: pa.Table | None = first
        while table is not None:
            for stripe in encode(table, compression, filters=merge.table.filters):
                assembled.add(stripe)
            table = next(tables, None)
        return assembled.rows, assembled.finish({})


def _chunks(rows: Iterator[pa.ChunkedArray]) -> Iterator[pa.Table]:
    buffered: list[pa.Table] = []
    size_bytes = 0
    for chunk in rows:
        if len(chunk):
            buffered.append(pa.Table.from_struct_array(chunk))
            size_bytes += chunk.nbytes
        if size_bytes >= _STRIPE_BYTES:
            yield pa.concat_tables(buffered)
            buffered, size_bytes = [], 0
    if buffered:
        yield pa.concat_tables(buffered)


def _parquet(merge: BucketMerge, options: StorageOptions | None, compression: str) -> tuple[int, int]:
    del compression  # A merged Parquet file takes the first file's compression.
    return append_parquet(merge, options)


def _text(merge: BucketMerge, options: StorageOptions | None, compression: str) -> tuple[int, int]:
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

"""Making one file of an insert-only table: its files after each other, in their own format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from airflow_hive_federation.acid.arrow_columns import each_leaf, in_one_piece
from airflow_hive_federation.acid.compaction.plan import BucketMerge, FileFormat, MergeInput
from airflow_hive_federation.acid.compaction.rows import BucketReader
from airflow_hive_federation.acid.orc.assembly import AssembledFile, encode, type_messages
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.storage.filesystem import join, publishing, reading

_COPY_BYTES = 8 * 1024 * 1024
_STRIPE_BYTES = 64 * 1024 * 1024
_HYBRID_CALENDAR = 1
_ARROW_SCHEMA = b"ARROW:schema"
_ZONE, _STANDARD = b"writer.time.zone", b"writer.zone.conversion.legacy"
_CLOCK = {_ZONE: b"UTC", _STANDARD: b"false"}
_UTC = {"UTC", "Z", "GMT", "Etc/UTC", "Etc/GMT"}
_OF_INT96 = pa.timestamp("ns")
_1900_NS = -2_208_988_800 * 10**9
_INT96 = "use_deprecated_int96_timestamps"


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
    with publishing(join(merge.table.location, merge.output), options) as file:
        made = AssembledFile(
            file,
            type_messages(reader.row_type),
            compression=compression,
            calendar=reader.calendar or _HYBRID_CALENDAR,
        )
        table: pa.Table | None = first
        while table is not None:
            for stripe in encode(table, compression):
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
    schema, settings = _parquet_schema(merge, options)
    rows = 0
    with publishing(join(merge.table.location, merge.output), options) as file:
        with parquet.ParquetWriter(file, schema, store_schema=False, **settings) as writer:
            for source in merge.inserts:
                with reading(join(merge.table.location, source.path), options) as content:
                    opened = _opened(merge, source, content)
                    for group in range(opened.num_row_groups):
                        found = opened.read_row_group(group)
                        if settings[_INT96]:
                            _check_range(merge, source, content, group, found.schema)
                            found = _wall_clocks(merge, source, opened, found)
                        table = _with_columns(found, schema)
                        rows += table.num_rows
                        writer.write_table(table)
            # The writer forgets those of the schema when it does not store the schema itself.
            writer.add_key_value_metadata(dict(schema.metadata or {}))
        return rows, int(file.tell())


def _parquet_schema(
    merge: BucketMerge, options: Mapping[str, Any] | None
) -> tuple[pa.Schema, dict[str, Any]]:
    """The columns of all files, and how the first was written; Hive matches Parquet columns by name."""
    schemas: list[pa.Schema] = []
    settings: dict[str, Any] = {}
    for source in merge.inserts:
        with reading(join(merge.table.location, source.path), options) as content:
            opened = _opened(merge, source, content)
            metadata = {**(opened.metadata.metadata or {}), **_CLOCK}
            metadata.pop(_ARROW_SCHEMA, None)
            schema = opened.schema_arrow.with_metadata(metadata)
            # The calendar, for one, in which Hive wrote (DataWritableWriteSupport).
            if schemas and schemas[0].metadata != schema.metadata:
                raise _wrong(merge, source, "was written with other settings than the files before it")
            if not schemas:
                settings = _parquet_settings(opened)
            schemas.append(schema)
    try:
        return pa.unify_schemas(schemas), settings
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise _wrong(merge, merge.inserts[-1], f"and those before it differ: {error}") from error


def _parquet_settings(opened: parquet.ParquetFile) -> dict[str, Any]:
    columns = [opened.schema.column(index) for index in range(len(opened.schema))]
    compression = "none"
    if opened.num_row_groups and columns:
        compression = opened.metadata.row_group(0).column(0).compression.lower()
    return {
        "compression": "none" if compression == "uncompressed" else compression,
        _INT96: any(one.physical_type == "INT96" for one in columns),
    }


def _check_range(merge: BucketMerge, source: MergeInput, content: Any, group: int, schema: pa.Schema) -> None:
    """Arrow reads INT96 as nanoseconds since 1970, and years that these do not reach silently as others."""
    coarse = parquet.ParquetFile(content, coerce_int96_timestamp_unit="us")
    try:
        coarse.read_row_group(group).cast(schema)
    except pa.ArrowInvalid as error:
        why = "has timestamps outside the years 1677 to 2262, which cannot be written here"
        raise _wrong(merge, source, why) from error


def _wall_clocks(
    merge: BucketMerge, source: MergeInput, opened: parquet.ParquetFile, rows: pa.Table
) -> pa.Table:
    """Make instants what the writer's clock showed.

    In files that Java's Parquet library has not made, such as ours, Hive takes INT96 for that, whatever zone
    they name (``hive.parquet.timestamp.skip.conversion``).
    """
    said = opened.metadata.metadata or {}
    if not str(opened.metadata.created_by).startswith("parquet-mr"):
        return rows
    if _ZONE not in said:
        raise _wrong(merge, source, "has timestamps, but does not say in which time zone it was written")
    zone = said[_ZONE].decode()
    if zone in _UTC:
        return rows
    by_standard_time = said.get(_STANDARD) != b"false"

    def shown(array: pa.Array) -> pa.Array:
        if not array.type.equals(_OF_INT96):
            return array
        if (
            by_standard_time
            and (first := pc.min(array).cast(pa.int64()).as_py()) is not None
            and first < _1900_NS
        ):
            raise _wrong(
                merge, source, "has timestamps before 1900 of an older Hive's, which are not merged here"
            )
        instants = pc.assume_timezone(array, "UTC").cast(pa.timestamp(array.type.unit, zone))
        return pc.local_timestamp(instants)

    try:
        columns = [each_leaf(in_one_piece(column), shown) for column in rows.columns]
    except pa.ArrowInvalid as error:
        raise _wrong(merge, source, f"was written in a time zone that is not known here: {error}") from error
    return pa.table(columns, schema=rows.schema)


def _with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table.column(field.name) if field.name in table.schema.names else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _opened(merge: BucketMerge, source: MergeInput, content: Any) -> parquet.ParquetFile:
    try:
        return parquet.ParquetFile(content)
    except (pa.ArrowException, OSError) as error:
        raise _wrong(merge, source, f"is not a whole Parquet file: {error}") from error


def _text(merge: BucketMerge, options: Mapping[str, Any] | None, compression: str) -> tuple[int, int]:
    del compression
    written = 0
    with publishing(join(merge.table.location, merge.output), options) as file:
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


def _wrong(merge: BucketMerge, source: MergeInput, why: str) -> AcidFormatError:
    table = merge.table
    path = join(table.location, source.path)
    return AcidFormatError(
        f"{table.full_name}: {path} {why}.",
        remedy="Compact it with Hive's own worker; nothing was changed by this compaction.",
        table=table.name,
        partition=table.partition,
        path=path,
    )

"""Copies a bucket file without the rows of aborted write ids.

A streaming batch writes several write ids into one file, so that aborted rows lie between committed ones. A
reader hides them by the table's list of valid write ids. A copy must not contain them, because the target's
metastore does not keep the information that those write ids were aborted.
"""

from __future__ import annotations

import io
import itertools
import shutil
import tempfile
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.acid.names import side_file
from airflow_hive_federation.acid.side_files import read_flushed_length
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.orc.batches import Head, OrcBatches
from airflow_hive_federation.orc.file_writer import OrcFileWriter
from airflow_hive_federation.orc.tail import OrcTail, read_tail, replace_footer
from airflow_hive_federation.storage.filesystem import open_filesystem, reading, storage_errors
from airflow_hive_federation.storage.options import StorageOptions

ACID_COLUMNS = ("operation", "originalTransaction", "bucket", "rowId", "currentTransaction", "row")
_KEY_COLUMNS = ["originalTransaction", "bucket", "rowId"]
_COMPACT = "Run a major compaction of the partition on the source."
_WRITABLE = {"uncompressed", "zlib", "snappy", "lz4", "zstd"}


def rewrite_file(
    source: str, target: str, visible_write_ids: str, options: StorageOptions | None = None
) -> None:
    """Copy a bucket file between stores without the rows of aborted write ids; see :func:`drop_rows`.

    If the file has a ``_flush_length`` file, only that length of it is copied.

    :param source: URI of the bucket file.
    :param target: URI of the copy; a killed process leaves a part of it behind.
    :param visible_write_ids: the table's list of valid write ids in Hive's text form.
    :raises AcidFormatError: see :func:`drop_rows`.
    :raises StorageError: if a file cannot be read or written.
    """
    write_ids = ValidWriteIds.parse(visible_write_ids)
    length = read_flushed_length(side_file(source), options)
    filesystem, path = open_filesystem(target, options)
    with reading(source, options) as file, storage_errors(target), filesystem.open(path, "wb") as made:
        head = file if length is None else io.BufferedReader(Head(file, length))
        drop_rows(head, made, write_ids, name=source)


def drop_rows(
    source: BinaryIO, target: BinaryIO, write_ids: ValidWriteIds, *, name: str = "bucket file"
) -> int:
    """Copy an insert or delete bucket file without the rows whose write id is not valid.

    Rows are read in batches. Columns keep their ORC types, and Hive's user metadata
    (``hive.acid.key.index``, ``hive.acid.stats``, ``hive.acid.version``) is computed anew
    (``OrcRecordUpdater.KeyIndexBuilder``). An empty file, which Hive reads as one without rows, stays empty.

    :param source: the file, open for reading and seeking.
    :param target: a file, open for writing. It receives no byte before the copy is complete.
    :param write_ids: the valid write ids, with which each row's ``currentTransaction`` is compared.
    :param name: the file's name for error messages.
    :return: the number of rows left out.
    :raises AcidFormatError: if the source is truncated, is not an ACID bucket file, or has types that pyarrow
        cannot copy (unions), or values that ORC cannot store (see :func:`.orc.early_timestamps.storable`).
    """
    if not source.seek(0, io.SEEK_END):
        return 0
    tail = read_tail(source, name)
    _check(tail, name)
    with tempfile.TemporaryDirectory(prefix="hive-rewrite-") as directory:
        path = Path(directory, "bucket")
        dropped = _filter(source, path, tail, write_ids, name)
        with path.open("r+b") as made:
            _finish(made, tail, name)
            made.seek(0)
            shutil.copyfileobj(made, target)
    return dropped


def _check(tail: OrcTail, name: str) -> None:
    if tail.compression not in _WRITABLE:
        raise AcidFormatError(
            f"{name} has an ORC compression that cannot be written.", remedy=_COMPACT, path=name
        )


def _filter(file: BinaryIO, made: Path, tail: OrcTail, write_ids: ValidWriteIds, name: str) -> int:
    try:
        reader = _batches(file, tail, name)
        columns = tuple(reader.schema.names)
        if columns == ACID_COLUMNS:
            return tail.row_count - _write_visible(reader, made, tail, write_ids)
    except (pa.ArrowException, OSError, AcidFormatError) as error:
        reason = error.message if isinstance(error, AcidFormatError) else f"{error}."
        raise AcidFormatError(
            f"{name} cannot be rewritten without its aborted rows: {reason}",
            remedy=_COMPACT,
            path=name,
        ) from error
    raise AcidFormatError(
        f"{name} has the columns {', '.join(columns)}, not those of an ACID file.",
        remedy=_COMPACT,
        path=name,
    )


def _write_visible(reader: OrcBatches, made: Path, tail: OrcTail, write_ids: ValidWriteIds) -> int:
    kept = 0
    with closing(OrcFileWriter(made, tail.types, tail.compression)) as writer:
        writer.write(reader.schema.empty_table())
        for batch in reader.batches():
            visible = batch.filter(_visible(batch, write_ids))
            kept += visible.num_rows
            if visible.num_rows:
                writer.write(pa.Table.from_batches([visible]))
        writer.finish()
    return kept


def _visible(batch: pa.RecordBatch, write_ids: ValidWriteIds) -> pa.Array:
    current = batch.column("currentTransaction")
    known = pc.less_equal(current, write_ids.high_watermark)
    invalid = pa.array(write_ids.invalid_ids, type=pa.int64())
    return pc.and_(known, pc.invert(pc.is_in(current, value_set=invalid)))


def _finish(made: BinaryIO, tail: OrcTail, name: str) -> None:
    written = read_tail(made, name)
    ends = set(itertools.accumulate(written.stripe_rows))
    counts = [0, 0, 0]
    index = []
    place = 0
    for batch in _batches(made, written, name).batches(["operation", *_KEY_COLUMNS]):
        for item in pc.value_counts(batch.column("operation")).to_pylist():
            counts[item["values"]] += item["counts"]
        place += batch.num_rows
        if place in ends:
            (last,) = batch.slice(batch.num_rows - 1).to_pylist()
            index.append(",".join(str(last[column]) for column in _KEY_COLUMNS) + ";")
    metadata = {
        **tail.user_metadata,
        "hive.acid.key.index": "".join(index).encode(),
        "hive.acid.stats": ",".join(map(str, counts)).encode(),
        "hive.acid.version": b"2",
    }
    replace_footer(made, name, types=tail.types, calendar=tail.calendar, user_metadata=metadata)


def _batches(file: BinaryIO, tail: OrcTail, name: str) -> OrcBatches:
    size_bytes = file.seek(0, io.SEEK_END)
    file.seek(0)
    return OrcBatches(file, name, tail, size_bytes=size_bytes)

"""Counts the visible rows of small tables in this process, without Spark.

The counts equal those of :mod:`.reader` and :mod:`.formats.plain`. Tables with files that count in part, with
rows that have no written identity, or with compressed text, are left to those.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyarrow import orc

from airflow_hive_federation.acid.names import DirectoryKind
from airflow_hive_federation.acid.snapshot import AcidState
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.storage.filesystem import canonical, join, reading
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.tables.read.footers import check_acid, check_inserts, each, parquet_footers

#: Rows whose identities are held in memory, some 30 bytes each.
MOST_ROWS = 2_000_000
_IDENTITY = ["originalTransaction", "bucket", "rowId"]
_INSERT, _DELETE = 0, 2
_FORMATS = ("orc", "parquet", "text")
_PIECE_BYTES = 1 << 20
_PLAIN_ENDINGS = (".txt", ".csv", ".tsv")


def acid_row_count(
    places: Sequence[tuple[str, AcidState]], write_ids: ValidWriteIds, options: StorageOptions | None
) -> int | None:
    """Return the number of rows of a full ACID table that are visible in a snapshot.

    :param places: the location and the snapshot of the table, or of each partition.
    :param write_ids: the valid write ids of the snapshots.
    :return: the number; ``None`` if the table is left to Spark.
    :raises FileVanishedError: if a file is gone.
    :raises AcidFormatError: if a file is not a whole ACID file.
    """
    if any(_is_special(state) for _, state in places):
        return None
    files = [path for place in places for part in _files(*place) for path in part]
    if sum(each(files, options, lambda file, _: int(file.nrows))) > MOST_ROWS:
        return None
    return sum(_visible(location, state, write_ids, options) for location, state in places)


def plain_row_count(
    places: Sequence[tuple[str, str, Sequence[FileEntry]]], options: StorageOptions | None
) -> int | None:
    """Return the number of rows of visible files without ACID columns.

    :param places: the location, the format (:attr:`.forms.FileForm.file_format`), and the visible files of
        the table, or of each partition.
    :return: the number; ``None`` if the table is left to Spark.
    :raises FileVanishedError: if a file is gone.
    :raises AcidFormatError: if a file is not whole.
    """
    # A partition may lie inside another's directory: its files are listed for both, and count once.
    formats = {
        canonical(join(location, entry.path)): file_format
        for location, file_format, entries in places
        for entry in entries
        if entry.size_bytes
    }
    by_format = {name: [path for path, of in formats.items() if of == name] for name in _FORMATS}
    # Spark decompresses text by the ending of a file's name, as Hadoop does.
    if any(
        "." in path.rpartition("/")[2] and not path.endswith(_PLAIN_ENDINGS) for path in by_format["text"]
    ):
        return None
    orc_rows = each(by_format["orc"], options, lambda file, _: int(file.nrows))
    parquet_rows = [int(footer.num_rows) for _, footer in parquet_footers(by_format["parquet"], options)]
    lines = [_lines(path, options) for path in by_format["text"]]
    return sum([*orc_rows, *parquet_rows, *lines])


def _lines(path: str, options: StorageOptions | None) -> int:
    """Return the number of lines of a text file, which end as for Hadoop's ``LineReader``."""
    ends, last = 0, b""
    with reading(path, options) as file:
        while piece := file.read(_PIECE_BYTES):
            ends += piece.count(b"\n") + piece.count(b"\r") - piece.count(b"\r\n")
            # One end of a line may lie in two pieces.
            ends -= last == b"\r" and piece[:1] == b"\n"
            last = piece[-1:]
    return ends + (last not in b"\r\n")


def _is_special(state: AcidState) -> bool:
    """Return whether files count in part, or rows have their identity by position."""
    return bool(state.originals or state.side_files) or any(directory.raw for directory in state.directories)


def _files(location: str, state: AcidState) -> tuple[dict[str, bool], dict[str, bool]]:
    """Return the files of inserts and of deletes, and whether their rows are filtered by write id."""
    inserts: dict[str, bool] = {}
    deletes: dict[str, bool] = {}
    for directory in state.directories:
        found = deletes if directory.name.kind is DirectoryKind.DELETE_DELTA else inserts
        # To Hive, a file of no bytes has no rows (``ReaderImpl.buildEmptyTail``).
        entries = (entry for entry in directory.files if entry.size_bytes)
        found.update({join(location, entry.path): directory.mixed for entry in entries})
    return inserts, deletes


def _visible(
    location: str, state: AcidState, write_ids: ValidWriteIds, options: StorageOptions | None
) -> int:
    inserts, deletes = _files(location, state)

    def inserted(file: orc.ORCFile, path: str) -> pa.Table:
        check_inserts(file, path)
        return _identities(file, _INSERT, write_ids if inserts[path] else None)

    def deleted(file: orc.ORCFile, path: str) -> pa.Table:
        check_acid(file, path)
        return _identities(file, _DELETE, write_ids if deletes[path] else None)

    rows = each([*inserts], options, inserted)
    gone = each([*deletes], options, deleted)
    if not rows or not gone:
        return sum(table.num_rows for table in rows)
    return int(pa.concat_tables(rows).join(pa.concat_tables(gone), _IDENTITY, join_type="left anti").num_rows)


def _identities(file: orc.ORCFile, operation: int, write_ids: ValidWriteIds | None) -> pa.Table:
    """Return the identities of the rows that a file inserts or deletes.

    :param write_ids: leave out the rows of write ids that are not valid; ``None`` leaves out none.
    """
    table = file.read(columns=["operation", *_IDENTITY, "currentTransaction"])
    kept = table.column("operation").to_numpy() == operation
    if write_ids is not None:
        current = table.column("currentTransaction").to_numpy()
        kept &= (current <= write_ids.high_watermark) & ~np.isin(current, np.array(write_ids.invalid_ids))
    return table.select(_IDENTITY).filter(pa.array(kept))

"""Compares the snapshots of a transactional table's copy and primary, and selects the files of a snapshot.

A copy of a transactional table contains the rows of the write ids that were valid when it was made. Its rows
stay those of the primary until another write id becomes valid, because a compaction moves rows into other
files without changing them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from airflow_hive_federation.acid.history import check_history
from airflow_hive_federation.acid.markers import chosen
from airflow_hive_federation.acid.names import DirectoryKind
from airflow_hive_federation.acid.side_files import read_flushed_length
from airflow_hive_federation.acid.snapshot import AcidDirectory, AcidState
from airflow_hive_federation.clusters.metadata import Secondary, place_mark
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import RangeState, ValidWriteIds
from airflow_hive_federation.storage.filesystem import join
from airflow_hive_federation.storage.listing import file_size
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.transactions.snapshots import Snapshot, is_transactional


def is_insert_only(table: types.Table) -> bool:
    """Return whether a table is insert-only: transactional, with plain files whose rows have no write ids."""
    properties = str((table.parameters or {}).get("transactional_properties", ""))
    return is_transactional(table) and properties.lower() == "insert_only"


def lacks_writes(copy: ValidWriteIds, now: ValidWriteIds) -> bool:
    """Return whether a write id is valid now and not visible in a copy.

    :param copy: the write ids that are visible in the copy.
    :param now: the write ids of the table that are valid now.
    """
    # The write ids of another table are not comparable. The high watermark may sink, because the metastore
    # forgets aborted ids.
    return copy.table != now.table or _lacks_between(copy, now, 0, now.high_watermark)


def missing_writes(copy: ValidWriteIds, now: ValidWriteIds) -> int | None:
    """Return the number of write ids that are valid now and not visible in a copy; ``None`` if unknown.

    :param copy: the write ids that are visible in the copy.
    :param now: the write ids of the table that are valid now.
    """
    if copy.table != now.table:
        return None
    top = copy.high_watermark
    ended = sum(an_id <= top and now.is_valid(an_id) for an_id in copy.open_ids)
    hidden = sum(top < an_id <= now.high_watermark for an_id in (*now.open_ids, *now.aborted_ids))
    return ended + max(0, now.high_watermark - top - hidden)


def may_lack_rows(copy: ValidWriteIds, now: ValidWriteIds, state: AcidState) -> bool:
    """Return whether a directory may hold rows that are visible now and not visible in a copy.

    A new write id may belong to other partitions only. The name of a compacted directory contains a range of
    write ids, and the directory may hold rows of any of them.

    :param state: the state of the directory in the snapshot ``now``.
    """
    return copy.table != now.table or any(
        _lacks_between(copy, now, *_range_of(directory)) for directory in state.directories
    )


def _range_of(directory: AcidDirectory) -> tuple[int, int]:
    name = directory.name
    return (0 if name.kind is DirectoryKind.BASE else name.min_write_id), name.max_write_id


def _lacks_between(copy: ValidWriteIds, now: ValidWriteIds, low: int, high: int) -> bool:
    if any(low <= an_id <= high and now.is_valid(an_id) for an_id in copy.open_ids):
        return True
    above = max(low, copy.high_watermark + 1)
    return above <= high and now.range_state(above, high) is not RangeState.NONE


def brought_up(copy: ValidWriteIds, now: ValidWriteIds) -> ValidWriteIds:
    """Return the write ids of ``now``, for a copy with the same rows.

    Aborted ids stay aborted: the metastore forgets them once a compaction has removed their rows from the
    primary, but the copy still holds these rows. Open ids above the high watermark of ``now`` stay open: the
    metastore may have forgotten their end, and the copy may hold a part of their rows.
    """
    aborted = tuple(sorted({*copy.aborted_ids, *now.aborted_ids} - {*now.open_ids}))
    top = max(copy.high_watermark, now.high_watermark)
    still_open = {an_id for an_id in copy.open_ids if an_id > now.high_watermark}
    lowest = {*still_open, *(() if now.min_open_id is None else (now.min_open_id,))}
    return replace(
        now,
        high_watermark=top,
        open_ids=tuple(sorted({*now.open_ids, *still_open})),
        aborted_ids=aborted,
        min_open_id=min(lowest, default=None),
    )


def is_current(described: types.Table | types.Partition, copy: Secondary, now: ValidWriteIds) -> bool:
    """Return whether a copy of a transactional table or partition shows its present rows.

    :param now: the write ids of the table that are valid now.
    """
    return (
        copy.snapshot is not None
        and copy.source.metadata == place_mark(described)
        and not lacks_writes(copy.snapshot, now)
    )


@dataclass(frozen=True, kw_only=True)
class AcidFiles:
    """The files that a reader of a snapshot opens.

    :param state: the state of the directory in the snapshot.
    :param files: the files to copy, including marker files of directories. A file that a streaming writer has
        open has the length up to which it may be read.
    :param growing: the paths of these open files.
    :param problem: the reason why the files cannot be copied, as a clause; empty if they can.
    """

    state: AcidState
    files: Sequence[FileEntry]
    growing: frozenset[str] = frozenset()
    problem: str = ""


def acid_files(
    location: str,
    listing: Sequence[FileEntry],
    snapshot: Snapshot,
    *,
    insert_only: bool,
    options: StorageOptions | None,
) -> AcidFiles:
    """Select the files of a table or partition that a reader of a snapshot opens.

    :param listing: all files below its directory, and empty directories.
    :raises AcidFormatError: the directory breaks Hive's layout, or the cleaner has removed some of its files.
    """
    state = chosen(location, listing, snapshot.write_ids, snapshot.txns, options)
    check_history(location, state, snapshot.write_ids)
    problem = ""
    if insert_only and state.side_files:
        problem = f"a writer has {min(state.side_files)} open, and its rows have no write ids"
    mixed = next(
        (
            directory.path
            for directory in state.directories
            if directory.mixed and not directory.name.visibility_txn_id
        ),
        None,
    )
    if insert_only and mixed is not None:
        problem = f"{mixed} mixes committed with other write ids, and its files do not tell rows apart"
    lengths = {} if problem else _readable_lengths(location, state, options)
    files = [
        replace(entry, size_bytes=lengths.get(entry.path, entry.size_bytes))
        for entry in state.files(markers=True)
        # Without a flushed length, a file has no rows and no tail, so that no reader can open it.
        if lengths.get(entry.path) != 0
    ]
    return AcidFiles(state=state, files=files, growing=frozenset(lengths), problem=problem)


def _readable_lengths(location: str, state: AcidState, options: StorageOptions | None) -> dict[str, int]:
    """Return the lengths in bytes up to which the files of streaming writers may be read.

    A writer only appends, and each flushed length ends with a tail: these first bytes are a file of their
    own. They hold all rows that were committed before the call, and perhaps some of open transactions, which
    readers leave out by their write ids.
    """
    lengths = {}
    for data in sorted(state.side_files.keys() & {entry.path for entry in state.files()}):
        length = read_flushed_length(join(location, state.side_files[data]), options)
        # The writer has closed the file since it was listed: it is whole, and may have grown.
        lengths[data] = file_size(join(location, data), options=options) if length is None else length
    return lengths

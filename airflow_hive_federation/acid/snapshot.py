"""Chooses the directories that a reader of a table or partition must see, without access to a file system.

Hive makes the same choice (``AcidUtils.getAcidState``), so that both read the same rows:

* the **base** is the one with the highest write id that this reader may use. A compacted base is usable only
  if no write id inside it is open for the reader. A base of INSERT OVERWRITE or TRUNCATE is a delta that
  hides all earlier rows, so it counts if its own write id is committed;
* of the **deltas** above the base, wider ones come first and hide the ones that they cover; deltas of several
  statements with one write id belong together; so do a delta and a delete delta of the same range;
* a directory ending in ``_vN`` counts only if transaction N, the compaction that made it, is committed;
* **original files** count only without a base.

This module differs from Hive in three points, all on purpose:

* if Hive's choice depends on the order of a file system's listing (two compactions of the same range), this
  module takes the directory of the later transaction;
* Hive uses a base whose write id is the lowest open one (``isValidBase`` compares with ``<=``), so that it
  shows an INSERT OVERWRITE that is still running; here the base is invisible until the commit;
* of several deltas of exactly the same range Hive can take two (``delta_x_y_vN``, ``delete_delta_x_y``,
  ``delta_x_y``) and show every row twice; this module takes one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from airflow_hive_federation.acid.names import (
    CONVERTED_BASE_WRITE_ID,
    SIDE_FILE_SUFFIX,
    DirectoryKind,
    DirectoryName,
    FileKind,
    is_acid_directory,
    parse_directory,
    parse_file,
)
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import RangeState, ValidTxns, ValidWriteIds

_MARKERS = {FileKind.VERSION, FileKind.METADATA}


@dataclass(frozen=True, kw_only=True)
class AcidDirectory:
    """A base, delta or delete delta with its files.

    :param path: path relative to the listed directory.
    :param name: the parsed name.
    :param files: data files, ascending by path.
    :param side_files: ``_flush_length`` files.
    :param markers: the files ``_orc_acid_version`` and ``_metadata_acid``, if they exist.
    :param raw: in a full ACID table, the files have no ACID columns (LOAD DATA, IMPORT).
    :param mixed: only a part of the write-id range is visible, so rows must be filtered by their write id.
    """

    path: str
    name: DirectoryName
    files: tuple[FileEntry, ...] = ()
    side_files: tuple[FileEntry, ...] = ()
    markers: tuple[FileEntry, ...] = ()
    raw: bool = False
    mixed: bool = False


@dataclass(frozen=True, kw_only=True)
class AcidState:
    """The snapshot of a table or partition: the directories and files that a reader must read.

    :param base: the base to read, if there is one.
    :param originals: original files to read, in the order in which their rows are numbered.
    :param deltas: deltas to read, in Hive's order.
    :param delete_deltas: delete deltas to read, in Hive's order.
    :param obsolete: directories and original files that other directories of the snapshot replace.
    :param aborted: directories with aborted writes only, or from an aborted compaction.
    :param aborted_write_ids: write ids of the directories with aborted writes only.
    :param invisible: directories that this reader must not see yet, or cannot use.
    :param has_mixed_aborts: a directory contains aborted and other write ids.
    """

    base: AcidDirectory | None
    originals: tuple[FileEntry, ...]
    deltas: tuple[AcidDirectory, ...]
    delete_deltas: tuple[AcidDirectory, ...]
    obsolete: tuple[str, ...] = ()
    aborted: tuple[str, ...] = ()
    aborted_write_ids: tuple[int, ...] = ()
    invisible: tuple[str, ...] = ()
    has_mixed_aborts: bool = False

    @property
    def directories(self) -> tuple[AcidDirectory, ...]:
        """Return the base, deltas and delete deltas to read."""
        base = () if self.base is None else (self.base,)
        return (*base, *self.deltas, *self.delete_deltas)

    def files(self, *, markers: bool = False) -> tuple[FileEntry, ...]:
        """Return all data files that a reader must see.

        :param markers: add the marker files. Without them, the base of a truncated table is an empty
            directory, and object stores keep no empty directories.
        """
        entries = list(self.originals)
        for directory in self.directories:
            entries.extend(directory.files)
            if markers:
                entries.extend(directory.markers)
        return tuple(entries)

    @cached_property
    def side_files(self) -> Mapping[str, str]:
        """Return the ``_flush_length`` file of each data file of which only the flushed part may be read."""
        return {
            entry.path.removesuffix(SIDE_FILE_SUFFIX): entry.path
            for directory in self.directories
            for entry in directory.side_files
        }


def acid_state(
    listing: Iterable[FileEntry],
    write_ids: ValidWriteIds,
    valid_txns: ValidTxns | None = None,
    *,
    compacted_bases: Collection[str] = (),
) -> AcidState:
    """Choose the directories and files to read in an unpartitioned table or in one partition.

    :param listing: all files below the table's or partition's directory, hidden ones included, and empty
        directories, whose paths end with ``/``.
    :param write_ids: the table's valid write ids.
    :param valid_txns: transactions visible to the reader, for the directories made by compactions. ``None``
        treats all of them as committed, which is right only if no compaction runs meanwhile.
    :param compacted_bases: bases without ``_vN`` whose ``_metadata_acid`` contains ``compacted``, the mark of
        Hive 3's compactor.
    :raises AcidFormatError: if a directory's name is malformed, or the only base holds rows that this reader
        must not see and the history before it is gone.
    """
    txns = ValidTxns.everything() if valid_txns is None else valid_txns
    group = _group(listing)
    choice = _Choice(write_ids, txns, frozenset(compacted_bases))
    for directory in sorted((d for d in group.directories.values() if _is_base(d)), key=_base_order):
        choice.consider_base(directory)
    for directory in group.directories.values():
        if not _is_base(directory):
            choice.consider_delta(directory)
    choice.keep_best_deltas()
    choice.check_history()
    originals = sorted((entry for entry in group.originals if entry.size_bytes), key=_by_path)
    if choice.base is not None:
        choice.obsolete.extend(entry.path for entry in originals)
        originals = []
    return choice.state(originals)


@dataclass
class _Listing:
    directories: dict[str, AcidDirectory]
    originals: list[FileEntry]


def _group(listing: Iterable[FileEntry]) -> _Listing:
    files: dict[str, list[FileEntry]] = {}
    originals: list[FileEntry] = []
    for entry in listing:
        *parents, name = entry.path.split("/")
        home = _acid_parent(parents)
        if any(part.startswith((".", "_")) for part in parents):
            continue
        if not name:
            # An empty directory may be a base: an INSERT OVERWRITE without rows makes an empty base.
            if home is not None:
                files.setdefault(home, [])
            continue
        kind = parse_file(name).kind
        if kind is FileKind.HIDDEN:
            continue
        if home is not None:
            files.setdefault(home, []).append(entry)
        elif kind not in _MARKERS:
            originals.append(entry)
    return _Listing({path: _directory(path, entries) for path, entries in files.items()}, originals)


def _acid_parent(parents: Sequence[str]) -> str | None:
    # Tables written by UNION ALL, skewed tables and imports have further directories below a delta; the
    # innermost base or delta counts (AcidUtils.getHdfsDirSnapshots, isChildOfDelta).
    for depth in range(len(parents), 0, -1):
        if is_acid_directory(parents[depth - 1]):
            return "/".join(parents[:depth])
    return None


def _directory(path: str, entries: Sequence[FileEntry]) -> AcidDirectory:
    by_kind: dict[FileKind, list[FileEntry]] = {}
    for entry in sorted(entries, key=_by_path):
        by_kind.setdefault(parse_file(entry.path.rpartition("/")[2]).kind, []).append(entry)
    name = parse_directory(path.rpartition("/")[2])
    markers = [entry for kind in _MARKERS for entry in by_kind.get(kind, ())]
    data = [
        entry
        for kind in (FileKind.BUCKET, FileKind.ORIGINAL, FileKind.OTHER)
        for entry in by_kind.get(kind, ())
    ]
    return AcidDirectory(
        path=path,
        name=name,
        files=tuple(sorted(data, key=_by_path)),
        side_files=tuple(by_kind.get(FileKind.SIDE_FILE, ())),
        markers=tuple(sorted(markers, key=_by_path)),
        raw=_is_raw(name, by_kind),
    )


def _is_raw(name: DirectoryName, kinds: Collection[FileKind]) -> bool:
    # As MetaDataFile.isRawFormat, which also opens a file. Files of a major compaction or a streaming batch
    # have ACID columns.
    compacted_base = name.kind is DirectoryKind.BASE and name.visibility_txn_id > 0
    if name.kind is DirectoryKind.DELETE_DELTA or compacted_base or name.min_write_id != name.max_write_id:
        return False
    return FileKind.ORIGINAL in kinds and FileKind.VERSION not in kinds


@dataclass
class _Choice:
    write_ids: ValidWriteIds
    txns: ValidTxns
    compacted_bases: frozenset[str]
    base: AcidDirectory | None = None
    oldest_base: AcidDirectory | None = None
    current: list[AcidDirectory] = field(default_factory=list)
    obsolete: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    aborted_write_ids: set[int] = field(default_factory=set)
    invisible: list[str] = field(default_factory=list)
    has_mixed_aborts: bool = False

    def consider_base(self, candidate: AcidDirectory) -> None:
        """Use or refuse a base; bases come from the highest write id down. See ``processBaseDir``."""
        if not self._made_by_committed_txn(candidate):
            return
        write_id = candidate.name.max_write_id
        if self.oldest_base is None or write_id < self.oldest_base.name.max_write_id:
            self.oldest_base = candidate
        compacted = self._is_compacted(candidate)
        if self.write_ids.is_aborted(write_id) and not compacted:
            self.aborted.append(candidate.path)
            self.aborted_write_ids.add(write_id)
            return
        current = self.base
        better = current is None or (current.name.max_write_id == write_id and compacted)
        if not better:
            self.obsolete.append(candidate.path)
        elif self._is_valid_base(candidate, compacted):
            if current is not None:
                self.obsolete.append(current.path)
            self.base = candidate
        else:
            self.invisible.append(candidate.path)

    def consider_delta(self, candidate: AcidDirectory) -> None:
        """Keep a delta unless it is wholly aborted or invisible; see ``processDeltaDir``."""
        if not self._made_by_committed_txn(candidate):
            return
        low, high = candidate.name.min_write_id, candidate.name.max_write_id
        aborted = self.write_ids.range_aborted(low, high)
        if aborted is RangeState.ALL:
            self.aborted.append(candidate.path)
            self.aborted_write_ids.update(range(low, high + 1))
            return
        self.has_mixed_aborts |= aborted is RangeState.SOME
        visible = self.write_ids.range_state(low, high)
        if visible is RangeState.NONE:
            self.invisible.append(candidate.path)
        else:
            self.current.append(_with_mixed(candidate, visible is RangeState.SOME))

    def keep_best_deltas(self) -> None:
        """Drop the deltas that wider deltas or the base cover; see ``findBestWorkingDeltas``."""
        top = 0 if self.base is None else self.base.name.max_write_id
        in_statements = False
        kept: list[AcidDirectory] = []
        for directory in sorted(self.current, key=_delta_order):
            name = directory.name
            if name.max_write_id > top:
                if self.write_ids.range_state(top + 1, name.max_write_id) is RangeState.NONE:
                    self.invisible.append(directory.path)
                    continue
                top, in_statements = name.max_write_id, name.statement_id is not None
            elif not (name.max_write_id == top and in_statements) and not _completes(name, kept):
                self.obsolete.append(directory.path)
                continue
            kept.append(directory)
        self.current = kept

    def check_history(self) -> None:
        """Refuse the snapshot if compaction has erased history that this reader needs."""
        oldest = self.oldest_base
        if oldest is not None and self.base is None and self._is_compacted(oldest):
            raise AcidFormatError(
                f"Not enough history available for {self.write_ids.text()!r}: the oldest base is "
                f"{oldest.path}, which has later changes than this reader may see. Older files are gone.",
                remedy="Read with a newer list of valid write ids.",
                path=oldest.path,
            )

    def state(self, originals: Iterable[FileEntry]) -> AcidState:
        deltas = [d for d in self.current if d.name.kind is DirectoryKind.DELTA]
        return AcidState(
            base=self.base,
            originals=tuple(originals),
            deltas=tuple(deltas),
            delete_deltas=tuple(d for d in self.current if d.name.kind is DirectoryKind.DELETE_DELTA),
            obsolete=tuple(sorted(self.obsolete)),
            aborted=tuple(sorted(self.aborted)),
            aborted_write_ids=tuple(sorted(self.aborted_write_ids)),
            invisible=tuple(sorted(self.invisible)),
            has_mixed_aborts=self.has_mixed_aborts,
        )

    def _made_by_committed_txn(self, candidate: AcidDirectory) -> bool:
        txn_id = candidate.name.visibility_txn_id
        if self.txns.is_valid(txn_id):
            return True
        (self.aborted if self.txns.is_aborted(txn_id) else self.invisible).append(candidate.path)
        return False

    def _is_compacted(self, base: AcidDirectory) -> bool:
        return base.name.visibility_txn_id > 0 or base.path in self.compacted_bases

    def _is_valid_base(self, base: AcidDirectory, compacted: bool) -> bool:
        write_id = base.name.max_write_id
        if write_id == CONVERTED_BASE_WRITE_ID:
            return True
        if compacted:
            return self.write_ids.is_valid_base(write_id)
        return self.write_ids.is_valid(write_id)


def _with_mixed(directory: AcidDirectory, mixed: bool) -> AcidDirectory:
    return AcidDirectory(
        path=directory.path,
        name=directory.name,
        files=directory.files,
        side_files=directory.side_files,
        markers=directory.markers,
        raw=directory.raw,
        mixed=mixed,
    )


def _completes(name: DirectoryName, kept: Sequence[AcidDirectory]) -> bool:
    # delta_x_y and delete_delta_x_y of one compaction belong together. A delete delta may be read twice, a
    # delta may not.
    same = [
        other.name.kind
        for other in kept
        if (other.name.min_write_id, other.name.max_write_id, other.name.statement_id)
        == (name.min_write_id, name.max_write_id, name.statement_id)
    ]
    return bool(same) and (name.kind is DirectoryKind.DELETE_DELTA or DirectoryKind.DELTA not in same)


def _is_base(directory: AcidDirectory) -> bool:
    return directory.name.kind is DirectoryKind.BASE


def _base_order(directory: AcidDirectory) -> tuple[int, int, str]:
    return (-directory.name.max_write_id, directory.name.visibility_txn_id, directory.path)


def _delta_order(directory: AcidDirectory) -> tuple[int, int, int, int, str]:
    name = directory.name
    statement = -1 if name.statement_id is None else name.statement_id
    return (name.min_write_id, -name.max_write_id, statement, -name.visibility_txn_id, directory.path)


def _by_path(entry: FileEntry) -> str:
    return entry.path

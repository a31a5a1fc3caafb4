"""Plans the copy of an increment's files, and removes files on the target.

New deltas are invisible to readers until the target has committed their write ids, so they are copied
straight to their places. Results of compactions on the source are not: a base or a merged delta that begins
at or below the write ids that readers of the target already see would count as complete while half of it has
arrived, and hide the directories that it replaces. Such a directory is copied to a hidden place beside, and
moved when it is whole (see :mod:`.placing`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from airflow_hive_federation.acid.names import (
    DirectoryKind,
    DirectoryName,
    is_acid_directory,
    parse_directory,
)
from airflow_hive_federation.errors import TargetChangedError
from airflow_hive_federation.model.files import CopyItem, FileEntry
from airflow_hive_federation.model.write_ids import ValidTxns
from airflow_hive_federation.progress.cycle_events import CopyPlanned, TableCopied
from airflow_hive_federation.progress.observers import Observer
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.format.unfinished import COPY_PLAN, UnfinishedLoads
from airflow_hive_federation.replication.load.own_compactions import (
    OwnCompactions,
    can_overlap,
    directories_of,
    divided,
)
from airflow_hive_federation.replication.replica.layout import STAGE, TargetLayout, final_uri
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.storage.filesystem import (
    OBJECT_STORES,
    canonical,
    innermost,
    join,
    parse_location,
)
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.plan_files import read_plan
from airflow_hive_federation.storage.publishing import remove_file


@dataclass(frozen=True, kw_only=True)
class SourceDirectories:
    """The names of the source's directories in a partition.

    :param names: all of them.
    :param placed: those that hidden places hold, or may have held in a load that was killed.
    """

    names: frozenset[str]
    placed: frozenset[str]


@dataclass(kw_only=True)
class TableCopy:
    """The files of one table to copy, move and remove.

    :param items: files to copy.
    :param staged: hidden directory → the place to which it is moved.
    :param extraneous: URIs of files that the source no longer has (tables that are not transactional).
    :param renamed: the URI on the target of a file that was renamed on the source → its former URI there.
    :param contested: canonical URI on the target of each partition in which a compaction of the target could
        make readers see rows of ``staged`` twice → the source's directories there.
    """

    items: list[CopyItem] = field(default_factory=list)
    staged: dict[str, str] = field(default_factory=dict)
    extraneous: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    contested: dict[str, SourceDirectories] = field(default_factory=dict)


def total(copies: Mapping[str, TableCopy]) -> tuple[int, int]:
    """Return the number of files that are copied, and their size in bytes.

    :param copies: the copies of tables, by their names.
    """
    items = [item for copy in copies.values() for item in copy.items]
    return len(items), sum(item.size_bytes for item in items)


def report_plan(database: str, copies: Mapping[str, TableCopy], observer: Observer) -> None:
    """Report what the target lacks."""
    files, size_bytes = total(copies)
    observer(CopyPlanned(database=database, files=files, size_bytes=size_bytes))


def report_copies(database: str, copies: Mapping[str, TableCopy], observer: Observer) -> None:
    """Report each table with new files."""
    for name, copy in copies.items():
        if copy.items:
            files, size_bytes = total({name: copy})
            observer(TableCopied(table=f"{database}.{name}", files=files, size_bytes=size_bytes))


class EarlierCopies:
    """The source's files at their last copy, as the dumps before an increment list them.

    :param previous: URI of the dump from which the target was last loaded.
    :param unfinished: other loads that continue from that dump, and were killed.
    """

    def __init__(
        self,
        previous: str,
        options: StorageOptions | None = None,
        *,
        unfinished: UnfinishedLoads | None = None,
    ) -> None:
        self._previous, self._options, self._unfinished = previous, options, unfinished

    @cached_property
    def _homes(self) -> Mapping[str, str]:
        """The dumps that describe the tables, by their names."""
        manifest = DumpDirectory(self._previous, self._options).manifest()
        return {entry.name: entry.dump or self._previous for entry in manifest.tables}

    def files(self, document: TableDocument) -> Mapping[str, tuple[int, int]]:
        """Return the size and time of a table's files, by URI; none for a transactional table."""
        name = document.name
        if name not in self._homes or document.kind.transactional:
            return {}
        dumped = DumpDirectory(self._homes[name], self._options).files(name)
        return {file.uri: (file.size_bytes, file.modified_ns) for file in dumped}

    def overwritten(self, document: TableDocument) -> frozenset[str]:
        """Return the canonical URIs of files of a table that killed loads may have written over.

        The source may have its former file back by now. Size and time are then those of the last copy, while
        the target's file may have other bytes of the same length. Files of transactional tables never change.
        """
        return frozenset() if document.kind.transactional else self._begun

    @cached_property
    def _begun(self) -> frozenset[str]:
        dumps = self._unfinished.dumps if self._unfinished else ()
        plans = (read_plan(f"{dump.uri}/{COPY_PLAN}", options=self._options) for dump in dumps)
        return frozenset(canonical(final_uri(item.target)) for plan in plans for item in plan)

    def digests(self, table: str) -> Mapping[str, str]:
        """Return the digests of a table's files on the target, as they were copied, by canonical URI."""
        index = TableIndex(DumpDirectory(self._previous, self._options))
        return index.digests(table) if table in index else {}


def plan_copy(
    directory: DumpDirectory,
    layout: TargetLayout,
    document: TableDocument,
    *,
    there: Mapping[str, FileEntry],
    visible: int | None,
    before: Mapping[str, tuple[int, int]],
    repaired: Collection[str] = (),
    complete: int = 0,
    only: Collection[str] | None = None,
    transactions: Callable[[], ValidTxns] = ValidTxns.everything,
    resumed: bool = False,
    unread: Collection[str] = (),
) -> TableCopy:
    """Compare a table's files with the files on the target.

    :param directory: the dump.
    :param layout: maps its tables to the target.
    :param document: the table's document.
    :param there: the files on the target, see :func:`.target_files.files_there`.
    :param visible: highest write id that readers of the target see; ``None`` for a table that does not exist.
    :param before: size and modification time of the source's files when they were last copied, by URI: for
        tables that are not transactional, whose files may change.
    :param complete: write id up to which the target has every write id, with none open.
    :param repaired: canonical URIs of files of the target that differ, or may differ, from their copies.
    :param only: names of the partitions to compare; ``None`` for the whole table.
    :param transactions: returns the target's transactions, as they are after ``there`` was listed.
    :param resumed: a load that was killed may have placed directories.
    :param unread: canonical URIs of directories of which no metadata knows, so that nothing is hidden there.
    :raises TargetChangedError: results of compactions of both sides would show rows twice, or the target has
        another result of the source under the name of one.
    """
    transactional = document.kind.transactional
    directories = directories_of(there)
    # Most tables have none, and looking at the place of each file takes longer.
    has_hidden = any(f"/{STAGE}/" in uri for uri in there)
    copy = TableCopy()
    wanted = set()
    compacted: dict[str, int] = {}
    for file in directory.files(document.name, only=only):
        target = layout.file(document, file)
        key = canonical(target)
        wanted.add(key)
        present_size = there[key].size_bytes if key in there else None
        same = present_size == file.size_bytes and not file.filtered and key not in repaired
        moved = None
        compacted.update({key: file.size_bytes} if file.path != file.target_path else {})
        if visible is not None and (has_hidden or not same) and not innermost(key, unread):
            moved = _stage(layout, document, file)
        if same and (transactional or before.get(file.uri) == (file.size_bytes, file.modified_ns)):
            if moved and _is_half_moved(*moved, directories):
                copy.staged.update([moved])
            continue
        if key not in repaired and _is_covered(target, complete, directories):
            continue
        hidden = None
        if moved and _begins_at_or_below(file.target_path, visible or 0) and _is_to_move(*moved, directories):
            staged, home = moved
            copy.staged[staged] = home
            hidden = join(staged, file.target_path.partition("/")[2])
        copy.items.append(layout.item(document, file, hidden))
        if file.renamed_from and key not in there:
            former = replace(file, path=file.renamed_from, target_path=file.renamed_from)
            copy.renamed[target] = canonical(layout.file(document, former))
    if transactional and visible is not None:
        _refuse_other_results(document.name, compacted, there, repaired)
        own = OwnCompactions(document.name, directories, complete, transactions)
        _leave_out_own_rows(copy, own, wanted)
        copy.contested = _contested(copy, directories, wanted, complete, resumed=resumed)
        for home, of_source in copy.contested.items():
            own.refuse_beside(home, of_source.placed, of_source.names)
    surplus = there.keys() - wanted
    # A transactional table keeps directories that a compaction replaced: its own readers pass over them.
    copy.extraneous = sorted(surplus.intersection(repaired) if transactional else surplus)
    return copy


def _refuse_other_results(
    table: str, compacted: Mapping[str, int], there: Mapping[str, FileEntry], repaired: Collection[str]
) -> None:
    """Refuse to copy a result of a compaction over another one of the same write ids.

    Readers would see rows of both. The dump lists tables and partitions that were rebalanced as others, so
    this refuses what no event has recorded.

    :param compacted: sizes of files of such results, by their canonical URIs on the target.
    :param there: the files on the target.
    :raises TargetChangedError: such a directory has files of another result.
    """
    results = {uri.rpartition("/")[0] for uri in compacted}
    others = [
        uri
        for uri, entry in there.items()
        if uri.rpartition("/")[0] in results
        and not uri.rpartition("/")[2].startswith((".", "_"))
        and uri not in repaired
        and entry.size_bytes != compacted.get(uri)
    ]
    if others:
        raise TargetChangedError(
            f"Table {table} would show rows twice: {len(others)} files of the target, such as {min(others)}, "
            "are of another compaction than those of the source that belong there.",
            remedy="Verify the replica, and repair what differs.",
            differences=sorted(others),
        )


def _leave_out_own_rows(copy: TableCopy, own: OwnCompactions, wanted: Collection[str]) -> None:
    """Leave out directories whose rows the target has in results of its own compactions.

    :param wanted: the canonical URIs on the target of all files of the source.
    :raises TargetChangedError: it has a part of these rows only.
    """
    of_source: Mapping[str, Collection[str]] | None = None
    kept, left_out = [], set()
    for item in copy.items:
        home, path = divided(canonical(final_uri(item.target)))
        name = path.partition("/")[0]
        if own.beside(home, name):
            of_source = of_source or directories_of(wanted)
            if own.has_rows(home, name, of_source[home]):
                left_out.add(f"{home}/{name}")
                continue
        kept.append(item)
    copy.items = kept
    copy.staged = {hidden: home for hidden, home in copy.staged.items() if canonical(home) not in left_out}


def _contested(
    copy: TableCopy,
    there: Mapping[str, Collection[str]],
    wanted: Collection[str],
    complete: int,
    *,
    resumed: bool,
) -> dict[str, SourceDirectories]:
    """Return the partitions in which a compaction of the target could make rows visible twice.

    :param there: the target's directories, see :func:`.own_compactions.directories_of`.
    :param wanted: the canonical URIs on the target of all files of the source.
    """
    placed: defaultdict[str, set[str]] = defaultdict(set)
    for uri in copy.staged.values():
        home, _, name = canonical(uri).rpartition("/")
        if can_overlap(name, complete):
            placed[home].add(name)
    if not (placed or resumed):
        return {}
    of_source = {
        home: frozenset(filter(is_acid_directory, names)) for home, names in directories_of(wanted).items()
    }
    if resumed:
        for home, names in of_source.items():
            if any(is_acid_directory(name) and name not in names for name in there.get(home, ())):
                placed[home].update(names)
    return {
        home: SourceDirectories(names=of_source.get(home, frozenset()), placed=frozenset(names))
        for home, names in placed.items()
    }


def move_renamed(copies: Mapping[str, TableCopy], earlier: EarlierCopies) -> None:
    """Have files renamed on the target that were renamed on the source, in place of copying them.

    Only a file that would be removed otherwise is renamed, and only if the digest of its copy is known. An
    object store would copy it.
    """
    for table, copy in copies.items():
        surplus = {uri for uri in copy.extraneous if parse_location(uri).scheme not in OBJECT_STORES}
        renamed = {target: former for target, former in copy.renamed.items() if former in surplus}
        digests = earlier.digests(table) if renamed else {}
        if digests:
            copy.items = [_moved(item, renamed.get(item.target), digests) for item in copy.items]


def remove_extraneous(
    copy: TableCopy, options: StorageOptions | None = None, *, check: Callable[[], None] = lambda: None
) -> None:
    """Remove files that the source no longer has.

    :param check: runs before each file, and raises if the cycle must end.
    """
    for uri in copy.extraneous:
        check()
        remove_file(uri, options)


def _moved(item: CopyItem, former: str | None, digests: Mapping[str, str]) -> CopyItem:
    if former is None or former not in digests:
        return item
    return replace(item, moved_from=former, digest=digests[former])


def partition_names(
    directory: DumpDirectory, layout: TargetLayout, document: TableDocument, only: Collection[str] | None
) -> dict[str, str]:
    """Return the names of partitions by the canonical URIs of their directories on the target.

    :param only: names of partitions; ``None`` for the whole table.
    :return: for a table without partitions, its own directory with an empty name.
    """
    if not document.partition_keys:
        return {canonical(layout.directory(document, document.location, "")): ""}
    return {
        canonical(layout.directory(document, line.location, line.name)): line.name
        for line in directory.partitions(document.name, only=only)
    }


def _stage(layout: TargetLayout, document: TableDocument, file: VisibleFile) -> tuple[str, str] | None:
    """Return the hidden place of the base or delta that holds a file, and its final place."""
    first, slash, _ = file.target_path.partition("/")
    if not slash or not is_acid_directory(first):
        return None
    directory = layout.directory(document, file.directory, file.partition)
    return join(directory, STAGE, first), join(directory, first)


def _is_to_move(staged: str, home: str, directories: Mapping[str, Collection[str]]) -> bool:
    """Return whether a hidden directory has not been moved yet, or only in part.

    :param directories: see :func:`.own_compactions.directories_of`.
    """
    return not _has_files(home, directories) or _is_half_moved(staged, home, directories)


def _is_half_moved(staged: str, home: str, directories: Mapping[str, Collection[str]]) -> bool:
    """Return whether a run was killed while it moved a directory in an object store.

    It has left files in both places. The move is repeated even if all files are in place, because nothing
    else removes the hidden ones.
    """
    return parse_location(home).scheme in OBJECT_STORES and _has_files(staged, directories)


def _has_files(uri: str, directories: Mapping[str, Collection[str]]) -> bool:
    """Return whether files lie below a directory.

    :param directories: see :func:`.own_compactions.directories_of`.
    """
    parent, _, name = canonical(uri).rpartition("/")
    return name in directories.get(parent, ())


def _is_covered(target: str, complete: int, directories: Mapping[str, Collection[str]]) -> bool:
    """Return whether the target has these rows in a directory of its own.

    Such a target has compacted the rows, or was the source before.

    If a delta is gone although the target is complete beyond it, the cleaner has removed it, and never does
    so before the compaction that replaced it is committed.

    :param complete: write id up to which the target has every write id.
    :param directories: see :func:`.own_compactions.directories_of`.
    """
    home, _, name = target.rpartition("/")[0].rpartition("/")
    if not is_acid_directory(name) or parse_directory(name).max_write_id > complete:
        return False
    siblings = directories.get(canonical(home), ())
    if name in siblings:
        return False
    wanted = parse_directory(name)
    parsed = [parse_directory(name_there) for name_there in siblings if is_acid_directory(name_there)]
    return any(
        _covers(directory_name, wanted)
        for directory_name in parsed
        if directory_name.max_write_id <= complete
    )


def _covers(present: DirectoryName, wanted: DirectoryName) -> bool:
    if present.kind is DirectoryKind.BASE:
        return wanted.max_write_id <= present.max_write_id
    return (
        present.kind is wanted.kind
        and present.statement_id is None
        and present.min_write_id <= wanted.min_write_id
        and wanted.max_write_id <= present.max_write_id
    )


def _begins_at_or_below(path: str, write_id: int) -> bool:
    return parse_directory(path.partition("/")[0]).min_write_id <= write_id

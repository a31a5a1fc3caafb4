"""Which files an increment copies, and to where.

Before the target has committed what they hold, new deltas are invisible to its readers, so they go straight
to their place. Not so the results of compactions on the source: a base or a merged delta that begins at or
below what readers of the target see already would be taken for complete while half of it has arrived, and
hide what it replaces. Such a directory is copied to a hidden place beside, and moved when it is whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_hive_federation.acid.names import (
    DirectoryKind,
    DirectoryName,
    is_acid_directory,
    parse_directory,
)
from airflow_hive_federation.model.files import CopyItem, FileEntry
from airflow_hive_federation.replication.format.directory import DumpDirectory, dumped_files
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.replica.layout import STAGE, TargetLayout
from airflow_hive_federation.storage.filesystem import canonical, join, open_filesystem, storage_errors
from airflow_hive_federation.storage.listing import list_many
from airflow_hive_federation.storage.publishing import remove_file, rename


@dataclass(kw_only=True)
class TableCopy:
    """What is copied of one table.

    :param items: files to copy.
    :param staged: hidden directory → the place it is moved to.
    :param extraneous: URIs of files that the source has no more (tables that are not transactional).
    """

    items: list[CopyItem] = field(default_factory=list)
    staged: dict[str, str] = field(default_factory=dict)
    extraneous: list[str] = field(default_factory=list)


def files_there(
    layout: TargetLayout, document: Mapping[str, Any], options: Mapping[str, Any] | None = None
) -> dict[str, FileEntry]:
    """List what lies on the target where a dump's table lies, by canonical URI."""
    listings = list_many(list(_roots(layout, document)), options=options, missing_ok=True)
    return {
        canonical(join(root, entry.path)): entry for root, entries in listings.items() for entry in entries
    }


def plan_copy(
    directory: DumpDirectory,
    layout: TargetLayout,
    document: Mapping[str, Any],
    *,
    there: Mapping[str, FileEntry],
    visible: int | None,
    before: Mapping[str, tuple[int, int]],
    mended: Collection[str] = (),
    complete: int = 0,
) -> TableCopy:
    """Compare a table's files with what lies on the target.

    :param directory: the dump.
    :param layout: where its tables lie on the target.
    :param document: the table's document.
    :param there: what lies on the target, see :func:`files_there`.
    :param visible: highest write id that readers of the target see; ``None`` for a table that is not there.
    :param before: size and modification time of the source's files when they were copied last, by URI: for
        tables that are not transactional, whose files may change.
    :param complete: write id up to which the target has everything, nothing below it being open.
    :param mended: canonical URIs of files of the target that are not what was copied.
    """
    transactional = TableKind(document["kind"]).transactional
    directories = _directories(there)
    copy = TableCopy()
    wanted = set()
    for file in dumped_files(directory, document["table"]["tableName"]):
        target = layout.file(document, file)
        key = canonical(target)
        wanted.add(key)
        found = there[key].size_bytes if key in there else None
        same = found == file.size_bytes and not file.filtered and key not in mended
        if same and (transactional or before.get(file.uri) == (file.size_bytes, file.modified_ns)):
            continue
        if key not in mended and _is_covered(target, complete, directories):
            continue
        hidden = None
        staged = _stage(layout, document, file) if visible is not None else None
        if staged and _begins_at_or_below(file.target_path, visible or 0):
            home = target.rpartition("/")[0]
            parent, _, name = canonical(home).rpartition("/")
            if name not in directories.get(parent, ()):
                copy.staged[staged] = home
                hidden = join(staged, file.target_path.partition("/")[2])
        copy.items.append(layout.item(document, file, hidden))
    surplus = there.keys() - wanted
    # A transactional table keeps what was replaced by a compaction: its own readers pass over it.
    copy.extraneous = sorted(surplus.intersection(mended) if transactional else surplus)
    return copy


def place_staged(
    copy: TableCopy, options: Mapping[str, Any] | None = None, *, check: Callable[[], None] = lambda: None
) -> None:
    """Move what was copied to hidden places to where readers look, a directory at a time.

    :param check: is called before each directory; raises if the cycle must end.
    """
    for staged, home in copy.staged.items():
        check()
        filesystem, path = open_filesystem(staged, options)
        _, target = open_filesystem(home, options)
        with storage_errors(home):
            # Missing: moved by a run that was killed thereafter.
            if filesystem.exists(path):
                rename(filesystem, path, target)
    # A partition may have several, so none of the hidden places goes before all have been moved.
    for stage in sorted({staged.rpartition("/")[0] for staged in copy.staged}):
        check()
        filesystem, path = open_filesystem(stage, options)
        with storage_errors(stage):
            if filesystem.exists(path):
                filesystem.rm(path, recursive=True)


def remove_extraneous(
    copy: TableCopy, options: Mapping[str, Any] | None = None, *, check: Callable[[], None] = lambda: None
) -> None:
    """Remove files that the source has no more.

    :param check: is called before each file; raises if the cycle must end.
    """
    for uri in copy.extraneous:
        check()
        remove_file(uri, options)


def _roots(layout: TargetLayout, document: Mapping[str, Any]) -> Iterator[str]:
    if TableKind(document["kind"]) is TableKind.EXTERNAL:
        for partition, location in document["places"]:
            yield layout.directory(document, location, partition)
    else:
        # Partitions of a replica lie below their table.
        yield layout.directory(document, document["table"]["sd"]["location"], "")


def _stage(layout: TargetLayout, document: Mapping[str, Any], file: VisibleFile) -> str | None:
    first, slash, _ = file.target_path.partition("/")
    if not slash or not is_acid_directory(first):
        return None
    return join(layout.directory(document, file.directory, file.partition), STAGE, first)


def _directories(files: Iterable[str]) -> Mapping[str, Collection[str]]:
    """Canonical URI of a directory → names of those in it that hold files."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for uri in files:
        parent, _, name = uri.rpartition("/")[0].rpartition("/")
        found[parent].add(name)
    return found


def _is_covered(target: str, complete: int, directories: Mapping[str, Collection[str]]) -> bool:
    """Whether the target has these rows in a directory of its own: it has compacted, or it was the source.

    Where a delta is gone although the target is complete beyond it, the cleaner has taken it away, and never
    does so before the compaction that replaced it is committed.

    :param complete: write id up to which the target has everything.
    :param directories: see :func:`_directories`.
    """
    home, _, name = target.rpartition("/")[0].rpartition("/")
    if not is_acid_directory(name) or parse_directory(name).max_write_id > complete:
        return False
    there = directories.get(canonical(home), ())
    if name in there:
        return False
    wanted = parse_directory(name)
    found = [parse_directory(one) for one in there if is_acid_directory(one)]
    return any(_covers(one, wanted) for one in found if one.max_write_id <= complete)


def _covers(one: DirectoryName, wanted: DirectoryName) -> bool:
    if one.kind is DirectoryKind.BASE:
        return wanted.max_write_id <= one.max_write_id
    return (
        one.kind is wanted.kind
        and one.statement_id is None
        and one.min_write_id <= wanted.min_write_id
        and wanted.max_write_id <= one.max_write_id
    )


def _begins_at_or_below(path: str, write_id: int) -> bool:
    return parse_directory(path.partition("/")[0]).min_write_id <= write_id

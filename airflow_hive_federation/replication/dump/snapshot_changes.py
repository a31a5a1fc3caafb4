"""Derives the files of a directory from its earlier files and the difference of two snapshots. Pure.

A difference names entries by their path in the earlier snapshot, those in a renamed directory included
(``SnapshotDiffReport``). So every path that it names counts as changed, with all below; both paths of a
renamed entry do. These paths are then listed in the later snapshot. No rule about the order of renames is
needed, and a path that is named without need costs one entry of a listing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.storage.snapshots import DiffEntry, Difference


def changed_paths(diff: Iterable[DiffEntry], place: str, files: Collection[str]) -> frozenset[str]:
    """Return the paths inside a directory below which files may differ; none lies below another.

    :param diff: the difference of two snapshots.
    :param place: path of the directory inside the one whose snapshots these are; empty for that one.
    :param files: paths of the directory's files in the earlier snapshot.
    :return: an empty path stands for the whole directory.
    """
    paths: set[str] = set()
    for entry in diff:
        if entry.kind is Difference.MODIFY:
            # A directory is named if its attributes or the names in it have changed; the names follow.
            if (inside := _inside(entry.path, place)) in files and inside:
                paths.add(inside)
            continue
        named = (entry.path, entry.target) if entry.kind is Difference.RENAME else (entry.path,)
        paths.update(inside for path in named if (inside := _inside(path, place)) is not None)
    return frozenset(path for path in paths if not (path and _is_below(path, paths)))


def brought_forward(
    files: Mapping[str, FileEntry], changed: Collection[str], listed: Iterable[FileEntry]
) -> list[FileEntry]:
    """Return the files of a directory in the later snapshot, by path.

    :param files: those in the earlier snapshot, by path.
    :param changed: see :func:`changed_paths`.
    :param listed: the files in the later snapshot at and below these paths.
    """
    unchanged = (
        entry for path, entry in files.items() if path not in changed and not _is_below(path, changed)
    )
    return sorted([*unchanged, *listed], key=lambda entry: entry.path)


def renamed_files(
    diff: Iterable[DiffEntry], place: str, files: Mapping[str, FileEntry], now: Iterable[FileEntry]
) -> dict[str, str]:
    """Return the former paths of files that were renamed and not changed, by their present paths.

    :param diff: the difference of two snapshots.
    :param place: path of the directory inside the one whose snapshots these are.
    :param files: the directory's files in the earlier snapshot, by path.
    :param now: those in the later one.
    """
    entries = list(diff)
    modified = {_inside(entry.path, place) for entry in entries if entry.kind is Difference.MODIFY}
    moves = {
        target: source
        for entry in entries
        if entry.kind is Difference.RENAME
        and (source := _inside(entry.path, place))
        and (target := _inside(entry.target, place))
    }
    former: dict[str, str] = {}
    for entry in now if moves else ():
        moved = next((path for path in (entry.path, *_above(entry.path)) if path in moves), None)
        if moved is None:
            continue
        source = moves[moved] + entry.path[len(moved) :]
        before = files.get(source)
        if (
            before is not None
            and source not in modified
            and (before.size_bytes, before.modified_ns) == (entry.size_bytes, entry.modified_ns)
        ):
            former[entry.path] = source
    return former


def _inside(path: str, place: str) -> str | None:
    """Return a path inside a directory.

    :return: an empty path for the directory and those above it; ``None`` for a path elsewhere.
    """
    if not place:
        return path
    if path == place or not path or place.startswith(f"{path}/"):
        return ""
    return path.removeprefix(f"{place}/") if path.startswith(f"{place}/") else None


def _is_below(path: str, directories: Collection[str]) -> bool:
    return any(above in directories for above in _above(path))


def _above(path: str) -> list[str]:
    """Return the directories above a path, the nearest first; the last one is empty."""
    above = []
    while path:
        path = path.rpartition("/")[0]
        above.append(path)
    return above

"""Keeps results of the source's compactions apart from those of the target, which would show rows twice.

Source and target compact at different moments. A reader takes the highest base and all deltas that reach
above it (``AcidUtils.getAcidState``): a base of the target up to write id 20 beside a delta of the source
from 10 to 30 shows the rows of 10 to 20 twice. Directories of one metastore never overlap so, because it
compacts a partition once at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from airflow_hive_federation.acid.names import (
    DirectoryKind,
    DirectoryName,
    is_acid_directory,
    parse_directory,
)
from airflow_hive_federation.errors import TargetChangedError

#: A row may be deleted twice.
_WITH_ROWS = frozenset({DirectoryKind.BASE, DirectoryKind.DELTA})


def overlap(one: DirectoryName, other: DirectoryName) -> bool:
    """Return whether readers would take both of two directories with rows of the same write ids. Pure."""
    if not {one.kind, other.kind} <= _WITH_ROWS or one.kind is other.kind is DirectoryKind.BASE:
        return False
    first, last = sorted(((_begin(one), one.max_write_id), (_begin(other), other.max_write_id)))
    # Of two that begin alike, one replaces the other.
    return first[0] < last[0] <= first[1] < last[1]


def divided(uri: str) -> tuple[str, str]:
    """Divide the URI of a file before its base or delta; a file without one lies in the directory itself."""
    parts = uri.split("/")
    place = next((number for number, part in enumerate(parts) if is_acid_directory(part)), len(parts) - 1)
    return "/".join(parts[:place]), "/".join(parts[place:])


class OwnCompactions:
    """The directories that a table's partitions have on the target, and may not have on the source.

    :param table: name of the table, for the error.
    :param there: the names of the target's directories by the canonical URIs of those in which they lie.
    :param complete: write id up to which the target has every write id, with none open.
    """

    def __init__(self, table: str, there: Mapping[str, Collection[str]], complete: int) -> None:
        self._table = table
        self._there = there
        self._complete = complete
        self._found: dict[tuple[str, str], tuple[str, ...]] = {}

    def beside(self, home: str, name: str) -> tuple[str, ...]:
        """Return the target's directories that overlap with one of the source that the target lacks.

        :param home: canonical URI of the partition's directory.
        :param name: name of the source's directory.
        """
        if (home, name) not in self._found:
            self._found[home, name] = self._overlapping(home, name)
        return self._found[home, name]

    def has_rows(self, home: str, name: str, of_source: Collection[str]) -> bool:
        """Return whether the target has the rows of a directory of the source in directories of its own.

        :param of_source: the names of the source's directories in the partition.
        :raises TargetChangedError: it has only some of them, and would show these twice.
        """
        own = [sibling for sibling in self.beside(home, name) if sibling not in of_source]
        if own and parse_directory(name).max_write_id > self._complete:
            raise TargetChangedError(
                f"Table {self._table} would show rows twice: the source's compaction has made {name}, and "
                f"the target's own has made {own[0]} in {home}, which has a part of its rows.",
                remedy="Run a major compaction of the table or partition on the source (ALTER TABLE … COMPACT"
                " 'major'), whose result replaces both, and repeat the cycle.",
                differences=[f"{home}/{sibling}" for sibling in own],
            )
        return bool(own)

    def _overlapping(self, home: str, name: str) -> tuple[str, ...]:
        siblings = self._there.get(home, ())
        if not is_acid_directory(name) or name in siblings:
            return ()
        wanted = parse_directory(name)
        return tuple(
            sibling
            for sibling in sorted(siblings)
            if is_acid_directory(sibling) and overlap(parse_directory(sibling), wanted)
        )


def _begin(name: DirectoryName) -> int:
    """Return the lowest write id whose rows a directory may hold."""
    return 0 if name.kind is DirectoryKind.BASE else name.min_write_id

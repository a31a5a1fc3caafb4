"""Keeps results of the source's compactions apart from those of the target, which would show rows twice.

Source and target compact at different moments. A reader takes the highest base and all deltas that reach
above it (``AcidUtils.getAcidState``): a base of the target up to write id 20 beside a delta of the source
from 10 to 30 shows the rows of 10 to 20 twice. Directories of one metastore never overlap so, because it
compacts a partition once at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache

from airflow_hive_federation.acid.names import (
    DirectoryKind,
    DirectoryName,
    is_acid_directory,
    parse_directory,
)
from airflow_hive_federation.errors import TargetChangedError
from airflow_hive_federation.model.write_ids import ValidTxns

#: A row may be deleted twice.
_WITH_ROWS = frozenset({DirectoryKind.BASE, DirectoryKind.DELTA})


def overlap(one: DirectoryName, other: DirectoryName) -> bool:
    """Return whether readers would take both of two directories with rows of the same write ids. Pure."""
    if not {one.kind, other.kind} <= _WITH_ROWS or one.kind is other.kind is DirectoryKind.BASE:
        return False
    first, last = sorted(((_begin(one), one.max_write_id), (_begin(other), other.max_write_id)))
    # Of two that begin alike, one replaces the other.
    return first[0] < last[0] <= first[1] < last[1]


def can_overlap(name: str, complete: int) -> bool:
    """Return whether a compaction of the target could make a directory that overlaps with one of the source.

    It compacts no further than to ``complete``, and a base that goes beyond replaces all results of that.

    :param name: name of the source's directory.
    :param complete: write id up to which the target has every write id, with none open.
    """
    if not is_acid_directory(name):
        return False
    parsed = parse_directory(name)
    return parsed.kind is DirectoryKind.DELTA or (
        parsed.kind is DirectoryKind.BASE and parsed.max_write_id <= complete
    )


def divided(uri: str) -> tuple[str, str]:
    """Divide the URI of a file before its base or delta; a file without one lies in the directory itself."""
    parts = uri.split("/")
    place = next((number for number, part in enumerate(parts) if is_acid_directory(part)), len(parts) - 1)
    return "/".join(parts[:place]), "/".join(parts[place:])


def directories_of(files: Iterable[str]) -> Mapping[str, Collection[str]]:
    """Map the canonical URI of a directory to the names of its subdirectories that hold files."""
    subdirectories: defaultdict[str, set[str]] = defaultdict(set)
    for uri in files:
        parent, _, name = uri.rpartition("/")[0].rpartition("/")
        while name and name not in subdirectories[parent]:
            subdirectories[parent].add(name)
            parent, _, name = parent.rpartition("/")
    return subdirectories


class OwnCompactions:
    """The directories that a table's partitions have on the target, and may not have on the source.

    :param table: name of the table, for the error.
    :param there: the target's directories, see :func:`directories_of`.
    :param complete: write id up to which the target has every write id, with none open.
    :param transactions: returns the target's transactions, as they are after ``there`` was listed. Nobody
        reads the result of a compaction whose transaction is open or was aborted.
    """

    def __init__(
        self,
        table: str,
        there: Mapping[str, Collection[str]],
        complete: int,
        transactions: Callable[[], ValidTxns],
    ) -> None:
        self._table = table
        self._there = there
        self._complete = complete
        self._transactions = cache(transactions)
        self._found: dict[tuple[str, str], tuple[str, ...]] = {}

    def beside(self, home: str, name: str) -> tuple[str, ...]:
        """Return the target's directories that overlap with one of the source that the target lacks.

        :param home: canonical URI of the partition's directory.
        :param name: name of the source's directory.
        """
        if name in self._there.get(home, ()):
            return ()
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
            raise self._shown_twice(home, name, own)
        return bool(own)

    def refuse_beside(self, home: str, placed: Iterable[str], of_source: Collection[str]) -> None:
        """Refuse directories of the source that the target has beside overlapping ones of its own.

        :param placed: the names of directories of the source to look for.
        :param of_source: the names of all of the source's directories in the partition.
        :raises TargetChangedError: it shows rows twice, or would.
        """
        for name in sorted(set(self._there.get(home, ())).intersection(placed)):
            own = [sibling for sibling in self._overlapping(home, name) if sibling not in of_source]
            if own:
                raise self._shown_twice(home, name, own)

    def _overlapping(self, home: str, name: str) -> tuple[str, ...]:
        if not is_acid_directory(name):
            return ()
        wanted = parse_directory(name)
        return tuple(
            sibling
            for sibling in sorted(self._there.get(home, ()))
            if is_acid_directory(sibling)
            and overlap(parse_directory(sibling), wanted)
            and self._is_read(parse_directory(sibling))
        )

    def _is_read(self, name: DirectoryName) -> bool:
        return not name.visibility_txn_id or self._transactions().is_valid(name.visibility_txn_id)

    def _shown_twice(self, home: str, name: str, own: Sequence[str]) -> TargetChangedError:
        return TargetChangedError(
            f"Table {self._table} would show rows twice: the source's compaction has made {name}, and "
            f"the target's own has made {own[0]} in {home}, which has a part of its rows.",
            remedy="Run a major compaction of the table or partition on the source (ALTER TABLE … COMPACT"
            " 'major'), whose result replaces both, and repeat the cycle.",
            differences=[f"{home}/{sibling}" for sibling in own],
        )


def _begin(name: DirectoryName) -> int:
    """Return the lowest write id whose rows a directory may hold."""
    return 0 if name.kind is DirectoryKind.BASE else name.min_write_id

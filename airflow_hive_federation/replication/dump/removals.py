"""Guards removals by an incremental dump: each needs an event, the policy or a listing to account for it.

If the source lacks an object of the target and nothing accounts for that, the dump is not finished: the cycle
stops before it removes anything. The policy may allow such removals up to a bound.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from airflow_hive_federation.errors import SourceDirectoryMissingError, UnexplainedRemovalError
from airflow_hive_federation.replication.dump.evidence import Evidence
from airflow_hive_federation.replication.dump.source_directories import (
    BareDirectory,
    LostFiles,
    lost_files,
    new_directories_missing,
)
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.metadata.table_locations import TableLocations
from airflow_hive_federation.replication.policy import ReplicationPolicy

_NAMES_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The partitions and files that the target would lose of a table that both sides have.

    :param partitions: names of partitions that the source no longer has, although no event records their
        removal.
    :param of_partitions: number of partitions of the table's replica.
    :param files: files that would be removed because their directories have no files.
    :param missing: directories that do not exist, although no file of the replica came from them.
    """

    partitions: tuple[str, ...] = ()
    of_partitions: int = 0
    files: tuple[LostFiles, ...] = ()
    missing: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.partitions or self.files or self.missing)

    def without(self, evidence: Evidence, table: str) -> Losses:
        """Return the same losses, except for partitions whose removal events record."""
        remaining = tuple(name for name in self.partitions if not evidence.of_partition(table, name))
        return replace(self, partitions=remaining)

    @property
    def percent(self) -> int:
        """Return the percentage of the table's partitions or files that would go: the higher, rounded up."""
        lost = sum(loss.files for loss in self.files)
        shares = (
            (lost, max((loss.of for loss in self.files), default=0)),
            (len(self.partitions), self.of_partitions),
        )
        return max(ceil(100 * part / whole) if part else 0 for part, whole in shares)


@dataclass(frozen=True, kw_only=True)
class Unexplained:
    """The losses of one cycle without an explanation.

    :param tables: tables of the target that the source does not list.
    :param losses: losses of tables that both sides have.
    """

    tables: Collection[str] = ()
    losses: Mapping[str, Losses] = field(default_factory=dict)

    def without(self, evidence: Evidence) -> Unexplained:
        """Return the same losses, except for those that events record."""
        return Unexplained(
            tables=[name for name in self.tables if not evidence.of_table(name)],
            losses={name: losses.without(evidence, name) for name, losses in self.losses.items()},
        )


def partitions_before(home: DumpDirectory | None, table: str) -> Sequence[str]:
    """Return the names of the partitions that a table had when it was last dumped.

    :param home: the dump that describes the target's replica of the table; ``None`` if no dump does.
    """
    if home is None:
        return ()
    return home.partition_names(table)


def losses_of(
    table: str,
    places: TableLocations,
    *,
    bare: Sequence[BareDirectory],
    home: DumpDirectory | None,
    before: Sequence[str],
    evidence: Evidence,
    kind: TableKind,
) -> Losses:
    """Return the losses of the target for a table that the source lists.

    :param places: the places of the table's data now.
    :param bare: its directories without files.
    :param home: the dump that describes the target's replica of the table; ``None`` if no dump does.
    :param before: the partitions in that dump.
    """
    if home is None:
        return Losses(missing=tuple(new_directories_missing(bare, kind)))
    present = set(places.names())
    files, missing = (
        lost_files(home, table, bare, evidence, before=frozenset(before), kind=kind) if bare else ([], [])
    )
    return Losses(
        partitions=tuple(
            name for name in before if name not in present and not evidence.of_partition(table, name)
        ),
        of_partitions=len(before),
        files=tuple(files),
        missing=tuple(missing),
    )


def refuse_unexplained(policy: ReplicationPolicy, unexplained: Unexplained) -> None:
    """Stop a cycle that would remove objects without an explanation, unless the policy allows as much.

    :raises SourceDirectoryMissingError: directories of tables do not exist, and no file came from them.
    :raises UnexplainedRemovalError: more would go than the policy allows.
    """
    missing = {name: entry.missing for name, entry in unexplained.losses.items() if entry.missing}
    refuse_missing(policy.source_database, missing)
    losses = {
        name: entry
        for name, entry in unexplained.losses.items()
        if entry.percent > policy.max_unexplained_percent
    }
    tables = sorted(unexplained.tables) if len(unexplained.tables) > policy.max_unexplained_tables else []
    if not tables and not losses:
        return
    percent = max((entry.percent for entry in losses.values()), default=0)
    allowing = [
        *([f"max_unexplained_tables = {len(tables)}"] if tables else ()),
        *([f"max_unexplained_percent = {percent}"] if percent else ()),
    ]
    raise UnexplainedRemovalError(
        f"Source database {policy.source_database} of policy {policy.name!r} lacks objects that its replica "
        f"{policy.target_database} has, and no event records their removal:\n  "
        + "\n  ".join(_lines(tables, losses)),
        remedy="Nothing was removed. Look whether the source's metastore hides tables or partitions from "
        "this user, and whether the directories are mounted; then run the cycle again. If they are gone for "
        f"good, allow it for one cycle in the policy: {', '.join(allowing)}.",
        tables=tables,
        partitions={name: list(entry.partitions) for name, entry in losses.items() if entry.partitions},
        directories={
            name: [lost.location for lost in entry.files] for name, entry in losses.items() if entry.files
        },
    )


def refuse_missing(database: str, directories: Mapping[str, Sequence[str]]) -> None:
    """Stop if directories of tables to copy do not exist.

    :param directories: URIs of the directories, by table.
    :raises SourceDirectoryMissingError: a directory does not exist.
    """
    if not directories:
        return
    lines = (f"{table}: {_several(uris)}" for table, uris in sorted(directories.items()))
    raise SourceDirectoryMissingError(
        f"Directories of tables of source database {database} are not there:\n  " + "\n  ".join(lines),
        remedy="Mount the store. If the directories are gone for good, make them anew, drop the partitions "
        "(ALTER TABLE … DROP PARTITION), or leave the tables out (exclude_tables).",
        directories={table: list(uris) for table, uris in directories.items()},
    )


def _lines(tables: Sequence[str], losses: Mapping[str, Losses]) -> list[str]:
    lines = [f"{len(tables)} table(s): {_several(tables)}"] if tables else []
    for name, entry in sorted(losses.items()):
        if entry.partitions:
            lines.append(
                f"{len(entry.partitions)} of {entry.of_partitions} partitions of {name}: "
                f"{_several(entry.partitions)}"
            )
        lines += [
            f"{lost.files} of {lost.of} files of {name}: {lost.location} is "
            f"{'not there' if lost.missing else 'empty'}"
            for lost in entry.files
        ]
    return lines


def _several(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more

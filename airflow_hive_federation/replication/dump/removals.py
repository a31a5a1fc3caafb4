"""Removals by an incremental dump: the target loses nothing that no event, policy or listing explains.

Where the source lacks what the target has and nothing says why, the dump is not finished: the cycle stops
before anything is removed. The policy may allow it, up to a bound.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import SourceDirectoryMissingError, UnexplainedRemovalError
from airflow_hive_federation.model.events import read_event
from airflow_hive_federation.replication.dump.evidence import Evidence
from airflow_hive_federation.replication.dump.source_directories import (
    BareDirectory,
    LostFiles,
    lost_files,
    new_directories_missing,
)
from airflow_hive_federation.replication.format.directory import DumpDirectory, table_file
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.metadata.places import Places
from airflow_hive_federation.replication.metadata.table_names import named_event
from airflow_hive_federation.replication.policy import ReplicationPolicy

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient

_NAMES_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The partitions and files that the target would lose of a table that both sides have.

    :param partitions: names of partitions that the source has no more and of which no event tells.
    :param of_partitions: how many partitions the table's replica has.
    :param files: files that would go because nothing was found where they lay.
    :param missing: directories that are not there, though no file of the replica came from them.
    """

    partitions: tuple[str, ...] = ()
    of_partitions: int = 0
    files: tuple[LostFiles, ...] = ()
    missing: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.partitions or self.files or self.missing)

    def without(self, evidence: Evidence, table: str) -> Losses:
        """The same, but for partitions of which events tell."""
        left = tuple(name for name in self.partitions if not evidence.of_partition(table, name))
        return replace(self, partitions=left)

    @property
    def percent(self) -> int:
        """Percent of the table's partitions or files that would go, whichever is more, rounded up."""
        lost = sum(one.files for one in self.files)
        shares = (
            (lost, max((one.of for one in self.files), default=0)),
            (len(self.partitions), self.of_partitions),
        )
        return max(ceil(100 * part / whole) if part else 0 for part, whole in shares)


@dataclass(frozen=True, kw_only=True)
class Unexplained:
    """All that nothing explains of one cycle.

    :param tables: tables of the target that the source does not list.
    :param losses: what tables would lose that both sides have.
    """

    tables: Collection[str] = ()
    losses: Mapping[str, Losses] = field(default_factory=dict)


def partitions_before(home: DumpDirectory | None, table: str) -> Sequence[str]:
    """Names of the partitions that a table had when it was dumped last.

    :param home: the dump that describes what the target has of the table; ``None`` if none does.
    """
    if home is None:
        return ()
    return [line["name"] for line in home.read_lines(table_file("partitions", table, ".jsonl"))]


def losses_of(
    table: str,
    places: Places,
    *,
    bare: Sequence[BareDirectory],
    home: DumpDirectory | None,
    before: Sequence[str],
    evidence: Evidence,
    kind: TableKind,
) -> Losses:
    """Say what the target would lose of a table that the source lists.

    :param places: where the table's data lies now.
    :param bare: its directories in which nothing was found.
    :param home: the dump that describes what the target has of the table; ``None`` if none does.
    :param before: the partitions in it.
    :param kind: the table's.
    """
    if home is None:
        return Losses(missing=tuple(new_directories_missing(bare, kind)))
    there = set(places.names())
    files, missing = (
        lost_files(home, table, bare, evidence, before=frozenset(before), kind=kind) if bare else ([], [])
    )
    return Losses(
        partitions=tuple(one for one in before if one not in there and not evidence.of_partition(table, one)),
        of_partitions=len(before),
        files=tuple(files),
        missing=tuple(missing),
    )


def settle(client: MetastoreClient, policy: ReplicationPolicy, found: Unexplained, event_id: int) -> None:
    """Return if all that the target would lose may go: later events tell of it, or the policy allows it.

    :param client: client of the source.
    :param event_id: the cycle's last event.
    :raises SourceDirectoryMissingError: directories of tables are not there, and no file came from them.
    :raises UnexplainedRemovalError: it may not.
    """
    if found.tables or any(one.partitions for one in found.losses.values()):
        later = later_evidence(client, policy, event_id)
        found = Unexplained(
            tables=[name for name in found.tables if not later.of_table(name)],
            losses={name: one.without(later, name) for name, one in found.losses.items()},
        )
    refuse_unexplained(policy, found)


def later_evidence(client: MetastoreClient, policy: ReplicationPolicy, event_id: int) -> Evidence:
    """What events say that came after a cycle's last one.

    A source is listed after the cycle's events were read: what is missing may have been removed in between.

    :param client: client of the source.
    :param event_id: the cycle's last event.
    """
    evidence = Evidence(policy.source_database)
    for raw in client.iter_notification_events(event_id):
        evidence.add(named_event(policy, read_event(raw)))
    return evidence


def refuse_unexplained(policy: ReplicationPolicy, found: Unexplained) -> None:
    """Stop a cycle that would remove what nothing explains, unless the policy allows as much.

    :raises SourceDirectoryMissingError: directories of tables are not there, and no file came from them.
    :raises UnexplainedRemovalError: more would go than the policy allows.
    """
    refuse_missing(policy, {name: one.missing for name, one in found.losses.items() if one.missing})
    losses = {name: one for name, one in found.losses.items() if one.percent > policy.max_unexplained_percent}
    tables = sorted(found.tables) if len(found.tables) > policy.max_unexplained_tables else []
    if not tables and not losses:
        return
    percent = max((one.percent for one in losses.values()), default=0)
    allowing = [
        *([f"max_unexplained_tables = {len(tables)}"] if tables else ()),
        *([f"max_unexplained_percent = {percent}"] if percent else ()),
    ]
    raise UnexplainedRemovalError(
        f"Source database {policy.source_database} of policy {policy.name!r} lacks what its replica "
        f"{policy.target_database} has, and no event tells that it was removed:\n  "
        + "\n  ".join(_lines(tables, losses)),
        remedy="Nothing was removed. Look whether the source's metastore hides tables or partitions from "
        "this user, and whether the directories are mounted; then run the cycle again. If they are gone for "
        f"good, allow it for one cycle in the policy: {', '.join(allowing)}.",
        tables=tables,
        partitions={name: list(one.partitions) for name, one in losses.items() if one.partitions},
        directories={
            name: [lost.location for lost in one.files] for name, one in losses.items() if one.files
        },
    )


def refuse_missing(policy: ReplicationPolicy, directories: Mapping[str, Sequence[str]]) -> None:
    """Stop where directories of tables to copy are not there.

    :param directories: URIs of the directories, by table.
    :raises SourceDirectoryMissingError: there is one.
    """
    if not directories:
        return
    lines = (f"{table}: {_several(found)}" for table, found in sorted(directories.items()))
    raise SourceDirectoryMissingError(
        f"Directories of tables of source database {policy.source_database} are not there:\n  "
        + "\n  ".join(lines),
        remedy="Mount the store. If the directories are gone for good, make them anew, drop the partitions "
        "(ALTER TABLE … DROP PARTITION), or leave the tables out (exclude_tables).",
        directories={table: list(found) for table, found in directories.items()},
    )


def _lines(tables: Sequence[str], losses: Mapping[str, Losses]) -> list[str]:
    found = [f"{len(tables)} table(s): {_several(tables)}"] if tables else []
    for name, one in sorted(losses.items()):
        if one.partitions:
            found.append(
                f"{len(one.partitions)} of {one.of_partitions} partitions of {name}: "
                f"{_several(one.partitions)}"
            )
        found += [
            f"{lost.files} of {lost.of} files of {name}: {lost.location} is "
            f"{'not there' if lost.missing else 'empty'}"
            for lost in one.files
        ]
    return found


def _several(names: Sequence[Any]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(map(str, names[:_NAMES_SHOWN])) + more

"""Describes the partitions of a table that a cycle concerns, and refers to earlier dumps for the others.

A commit into one partition of many then costs as much as its own partition. Only a transactional table is
described so, and only if events name everything that may have changed: see :mod:`.named_partitions` for
definitions and statistics, :mod:`.written_partitions` for files, and :class:`~.tables.Unsettled` for the ends
of transactions. In all other cases the table is described as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidTxns
from airflow_hive_federation.replication.dump.allowed_sources import check_places
from airflow_hive_federation.replication.dump.change_manager import with_kept
from airflow_hive_federation.replication.dump.contents import visible_files
from airflow_hive_federation.replication.dump.directory_digests import DirectoryDigests
from airflow_hive_federation.replication.dump.event_fold import EventFold
from airflow_hive_federation.replication.dump.increment_plan import TablePlan
from airflow_hive_federation.replication.dump.removals import Losses
from airflow_hive_federation.replication.dump.source import ReplicatedSource
from airflow_hive_federation.replication.dump.source_directories import BareDirectory, Sightings
from airflow_hive_federation.replication.dump.tables import Unsettled, partition_totals
from airflow_hive_federation.replication.dump.written_partitions import partitions_with_other_files
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.format.tables import PartitionLine, PartitionTotals
from airflow_hive_federation.replication.format.unfinished import UnfinishedLoads
from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.metadata.table_locations import TableLocations

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient

#: A table with fewer partitions is always described as a whole.
_FEWEST = 2
#: So many partitions are described apart from the rest of their table; they are kept in memory.
_MOST = 10_000
#: A table is described as a whole again after so many dumps of some of its partitions.
_MOST_LAYERS = 8


@dataclass(frozen=True, kw_only=True)
class ChangedPartitions:
    """The partitions of a table that a cycle concerns.

    :param concerned: their names, those that are gone included.
    :param lines: those that exist.
    :param files: their files.
    :param places: their places.
    :param totals: the totals of all partitions of the table, by name.
    :param before: the names of those that existed in the dump before.
    :param losses: the losses of the target without an explanation.
    :param unsettled: see :attr:`~.manifest.TableEntry.unsettled`.
    :param rest: see :attr:`~.manifest.TableEntry.rest`.
    """

    concerned: frozenset[str]
    lines: Sequence[PartitionLine]
    files: Sequence[VisibleFile]
    places: TableLocations
    totals: Mapping[str, PartitionTotals]
    before: Collection[str]
    losses: Losses
    unsettled: tuple[str, ...]
    rest: tuple[str, ...]

    def write(self, directory: DumpDirectory, home: DumpDirectory, table: str) -> None:
        """Write them, and the other partitions too if the dump refers to no other one.

        :param directory: the dump that is being written.
        :param home: the dump that describes the table as the target has it.
        """
        lines: Iterable[PartitionLine] = self.lines
        files: Iterable[VisibleFile] = self.files
        if not self.rest:
            others = (line for line in home.partitions(table) if line.name not in self.concerned)
            lines = chain(lines, others)
            files = chain(files, (file for file in home.files(table) if file.partition not in self.concerned))
        directory.write_partitions(table, lines)
        directory.write_files(table, files)
        directory.write_totals(table, self.totals.values())


@dataclass(frozen=True, kw_only=True)
class _ChangedTable:
    """A table of which some partitions are described.

    :param home: the dump that describes the table as the target has it.
    :param before: the totals of its partitions in that dump, by name.
    """

    table: types.Table
    plan: TablePlan
    home: DumpDirectory
    before: Mapping[str, PartitionTotals]

    @property
    def name(self) -> str:
        return str(self.table.tableName)


@dataclass(frozen=True, kw_only=True)
class PartitionReader:
    """Reads the partitions of tables that a cycle concerns.

    :param begun: the partitions of each table that a killed load may have changed, see
        :func:`begun_partitions`.
    :param kept: the places of removed files, see :func:`~.change_manager.kept_by_source`.
    """

    source: ReplicatedSource
    folded: EventFold
    transactions: ValidTxns
    begun: Mapping[str, frozenset[str] | None]
    kept: Mapping[str, str]

    def read(
        self,
        client: MetastoreClient,
        table: types.Table,
        plan: TablePlan,
        entry: TableEntry,
        home: DumpDirectory,
    ) -> ChangedPartitions | None:
        """Read the partitions of a table that the cycle concerns.

        :param client: client of the source.
        :param entry: the table's entry in the dump from which the target was last loaded.
        :param home: the dump that describes the table as the target has it.
        :return: ``None`` if the table has to be described as a whole.
        """
        begun = self.begun.get(table.tableName, frozenset())
        if plan.partitions is None or begun is None:
            return None
        if not table.partitionKeys or not table_kind(table).transactional:
            return None
        totals = home.totals(table.tableName)
        if not totals or len(totals) < _FEWEST:
            return None
        named = plan.partitions.union(entry.unsettled, begun)
        changed = _ChangedTable(table=table, plan=plan, home=home, before=totals)
        concerned = self._concerned(changed, named)
        if concerned is None or len(concerned) > min(_MOST, len(totals) // 2):
            return None
        return self._described(client, changed, concerned, (home.uri, *entry.rest))

    def _concerned(self, changed: _ChangedTable, named: frozenset[str]) -> frozenset[str] | None:
        count = len(changed.before)
        if len(named) > count // 2:
            return None
        if not self.folded.committed_writers(changed.name):
            return named
        return named | partitions_with_other_files(changed.table, changed.before, named, self.source.options)

    def _described(
        self,
        client: MetastoreClient,
        changed: _ChangedTable,
        concerned: frozenset[str],
        chain_of_dumps: tuple[str, ...],
    ) -> ChangedPartitions | None:
        table, plan, before = changed.table, changed.plan, changed.before
        places, unsettled = TableLocations(table), Unsettled(plan.write_ids)
        lines = list(
            unsettled.watch_partitions(
                PartitionLine.of(places.add(partition), partition)
                for partition in self._partitions(client, changed, concerned)
            )
        )
        known = [before[partition] for partition in concerned if partition in before]
        if any(places.elsewhere()) or any(total.elsewhere for total in known):
            # It may share a directory with any other partition, or may have been given another one.
            return None
        check_places(self.source.roots, self.source.database, table, places)
        digests = DirectoryDigests(plan.write_ids, self.transactions) if plan.write_ids else None
        files, bare = self._files(table, places, plan, unsettled, digests)
        if bare and (any(directory.missing for directory in bare) or any(total.files for total in known)):
            # The other partitions show whether the store is mounted.
            return None
        evidence = self.folded.evidence
        absent = concerned.difference(places.names())
        if absent and any(total.elsewhere for total in before.values()):
            # A partition that stays may have lost its files with one that is gone.
            return None
        lost = {name for name in absent if not evidence.of_partition(changed.name, name)}
        if not lost <= before.keys():
            # An event names a partition that the metastore does not find by that name, and a listing may.
            return None
        others = {name: total for name, total in before.items() if name not in concerned}
        return ChangedPartitions(
            concerned=concerned,
            lines=lines,
            files=files,
            places=places,
            totals={**others, **_totals(places, files, digests)},
            before=[total.name for total in known],
            losses=Losses(partitions=tuple(sorted(lost)), of_partitions=len(before)),
            unsettled=unsettled.names,
            rest=chain_of_dumps if len(chain_of_dumps) <= _MOST_LAYERS else (),
        )

    def _partitions(
        self, client: MetastoreClient, changed: _ChangedTable, concerned: frozenset[str]
    ) -> Iterator[types.Partition]:
        if not concerned:
            return iter(())
        write_ids = changed.plan.write_ids
        return client.iter_partitions(
            self.source.database,
            changed.name,
            names=sorted(concerned),
            with_column_stats=True,
            valid_write_ids=write_ids.text() if write_ids else None,
        )

    def _files(
        self,
        table: types.Table,
        places: TableLocations,
        plan: TablePlan,
        unsettled: Unsettled,
        digests: DirectoryDigests | None,
    ) -> tuple[list[VisibleFile], Sequence[BareDirectory]]:
        if not places.partitions:
            return [], ()
        options, sources = self.source.options, self.source.roots
        sightings = Sightings(places)
        listed: Iterator[VisibleFile] = visible_files(
            table,
            places,
            plan.write_ids,
            self.transactions,
            options=options,
            sightings=sightings,
            digests=digests,
            singly=True,
        )
        listed = sources.watch(listed, f"a file of table {self.source.database}.{table.tableName}")
        files = list(unsettled.watch_files(with_kept(listed, self.kept)))
        return files, sightings.bare(options)


def begun_partitions(unfinished: UnfinishedLoads) -> Mapping[str, frozenset[str] | None]:
    """Return the partitions of each table that loads may have changed before they were killed.

    :return: ``None`` stands for all partitions of a table.
    """
    begun: dict[str, frozenset[str] | None] = {}
    for dump in unfinished.dumps:
        for entry in dump.manifest().changed_tables:
            before, concerned = begun.get(entry.name, frozenset()), entry.changes.concerned
            begun[entry.name] = None if before is None or concerned is None else before.union(concerned)
    return begun


def _totals(
    places: TableLocations, files: Iterable[VisibleFile], digests: DirectoryDigests | None
) -> dict[str, PartitionTotals]:
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for file in files:
        counts[file.partition] += 1
        sizes[file.partition] += file.size_bytes
    return partition_totals(places, counts, sizes, digests)

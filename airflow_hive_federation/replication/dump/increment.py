"""Writes the incremental dump: the changes of the source since the target's last event.

::

    <dump_root>/<policy>/<from>-<to>-<lease>/
        events.jsonl     the cycle's events: id, type, database, table
        ends.jsonl       transactions that ended, in their order
        writes/<table>.jsonl  transactions and write ids to replay
        …                as a bootstrap's dump, for the tables concerned only

All tables are dumped at one moment, as in a bootstrap: a list of the source's transactions, and the events up
to it (see :func:`~.event_fold.events_at`). Unlike in a bootstrap, a table is not cut below its lowest
open write id: the target gets open write ids as open ones. A transaction that ends later belongs to a later
cycle.

A table without an event costs only its name: the dump repeats nothing else that the target already has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.progress.events import (
    IncrementDumped,
    NothingChanged,
    TableDumped,
    TableExchanged,
    TableVanished,
)
from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.replication.dump.changed_partitions import (
    ChangedPartitions,
    PartitionReader,
    begun_partitions,
)
from airflow_hive_federation.replication.dump.cut import Cut
from airflow_hive_federation.replication.dump.documents import Documents
from airflow_hive_federation.replication.dump.ends import merged_ends, separate_ends
from airflow_hive_federation.replication.dump.exchanged_partitions import with_exchanged, written_at_once
from airflow_hive_federation.replication.dump.external_entries import dumped_entries
from airflow_hive_federation.replication.dump.external_snapshots import ExternalSnapshots
from airflow_hive_federation.replication.dump.increment_plan import TablePlan, lost_ends
from airflow_hive_federation.replication.dump.increment_summary import (
    IncrementSummary,
    idle_summary,
    summary_of,
)
from airflow_hive_federation.replication.dump.later_events import LaterEvents, is_exchanged
from airflow_hive_federation.replication.dump.relocated import refuse_relocated
from airflow_hive_federation.replication.dump.removals import (
    Losses,
    Unexplained,
    losses_of,
    partitions_before,
)
from airflow_hive_federation.replication.dump.renewed_partitions import renewed_partitions
from airflow_hive_federation.replication.dump.source import ReplicatedSource
from airflow_hive_federation.replication.dump.source_moment import IncrementStart, SourceMoment
from airflow_hive_federation.replication.dump.tables import Unsettled
from airflow_hive_federation.replication.dump.unreadable_events import described
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.dumped_policy import DumpedPolicy
from airflow_hive_federation.replication.format.files import DataLocation
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import (
    Manifest,
    RepairPlan,
    TableChanges,
    TableEntry,
)
from airflow_hive_federation.replication.format.tables import EndedTransaction, TableDocument
from airflow_hive_federation.replication.metadata import external_tables
from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.metadata.directories import check_external
from airflow_hive_federation.replication.metadata.external_tables import ExternalEntry
from airflow_hive_federation.replication.metadata.table_locations import TableLocations
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.foreign_writes import names_digest
from airflow_hive_federation.replication.replica.position import TargetPosition
from airflow_hive_federation.transactions.lease import end_lease, lease_of_a_dump

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool


def dump_increment(
    pool: MetastorePool,
    policy: ReplicationPolicy,
    position: TargetPosition,
    *,
    repair_plan: RepairPlan | None = None,
    cut: Cut | None = None,
    threads: int = 8,
    observer: Observer = LOGGED,
) -> IncrementSummary:
    """Write the dump of the changes since the target's position.

    :param pool: connections to the source.
    :param position: the target's position, see :func:`~.replica.position.read_position`.
    :param repair_plan: the parts of the target to repair, in addition to the source's changes.
    :param cut: the moment of a group of dumps; by default, the dump takes a cut of its own.
    :param threads: number of tables dumped in parallel.
    :param observer: receives the events of progress.
    :raises NoSuchObjectError: the source database is gone.
    :raises SourceWentBackError: the source knows fewer events than the target has seen.
    :raises EventCorruptError: an event cannot be read, and its database is not known.
    :raises UnknownEventError: an event has a type this version does not know.
    :raises SourceDirectoryMissingError: the directory of a table that is new to the target does not exist.
    :raises FileVanishedError: a table lost partitions each time that it was listed, or got another directory.
    :raises UnexplainedRemovalError: the source lacks objects that the target has, no event records their
        removal, and the policy does not allow as much.
    :raises LocationConflictError: tables would share or nest directories of the target.
    :raises HiddenLocationError: Hive would hide external tables of the target.
    """
    source = ReplicatedSource(pool, policy)
    start = IncrementStart(
        source=source,
        position=position,
        unfinished=position.unfinished(policy),
        repair_plan=repair_plan or RepairPlan(),
    )
    # Events go through a file: there may be millions, and the directory of their dump is known only at their
    # end.
    with (
        lease_of_a_dump(source.pool, policy=policy.name, given=cut.lease if cut else None) as held_lease,
        TemporaryFile("w+", encoding="utf-8") as spool,
    ):
        lease = held_lease.txn_id
        snapshots = ExternalSnapshots.after(policy, position.dump, lease=lease, observer=observer)
        with source.pool.client() as client:
            moment = SourceMoment.read(client, start, lease=lease, spool=spool, cut=cut)
        folded = moment.folded
        moment.report(source.database, observer)
        if moment.idle():
            if cut is None:
                end_lease(source.pool, lease)
            observer(NothingChanged(database=policy.source_database, event_id=folded.to_id))
            return idle_summary(moment, position)
        uri = f"{policy.directory}/{folded.from_id}-{folded.to_id}-{lease}"
        directory = DumpDirectory(uri, policy.storage_options)
        dump = _Dump(
            start,
            policy,
            moment=moment,
            events=spool,
            directory=directory,
            snapshots=snapshots,
            observer=observer,
        )
        contents = dump.write(threads)
        manifest = Manifest(
            kind=DumpKind.INCREMENT,
            policy=DumpedPolicy.of(policy),
            from_id=folded.from_id,
            event_id=folded.to_id,
            previous=position.dump,
            begun=position.begun,
            lease=lease,
            events=moment.events,
            transactions=dump.write_ends(),
            last_event=moment.last_event,
            open_writes=folded.open_writes,
            functions_changed=folded.functions_changed,
            lost=folded.lost,
            unreadable=tuple(described(folded.unreadable)),
            repair_plan=moment.repair_plan,
            adopted=moment.adopted,
            tables=tuple(contents.tables),
            skipped=moment.skipped,
            retained=tuple(sorted(moment.absent.kept)),
            dropped=tuple(contents.dropped),
            functions_gone=tuple(contents.functions_gone),
            partitions=sum(entry.partitions for entry in contents.tables),
        )
        held_lease.check()
        sealed = directory.finish_dump(manifest)
    summary = summary_of(uri, sealed)
    observer(
        IncrementDumped(
            dump=summary.dump,
            events=summary.events,
            transactions=summary.transactions,
            tables=summary.tables,
        )
    )
    return summary


@dataclass(frozen=True, kw_only=True)
class _DumpedTable:
    """A table whose documents are written, or which an earlier dump describes.

    :param losses: the losses of the target without an explanation.
    :param external: the directories of an external table that this dump describes.
    :param places: the same as its document lists them.
    :param listed_after: see :func:`~.exchanged_partitions.with_exchanged`.
    """

    entry: TableEntry
    losses: Losses | None = None
    external: Sequence[ExternalEntry] = ()
    places: tuple[DataLocation, ...] = ()
    listed_after: int = 0


@dataclass(frozen=True, kw_only=True)
class _Contents:
    """The entries of a dump's tables, and the names of tables and functions that the target loses."""

    tables: Sequence[TableEntry]
    dropped: Sequence[str]
    functions_gone: Sequence[str]


class _Dump:
    def __init__(
        self,
        start: IncrementStart,
        policy: ReplicationPolicy,
        *,
        moment: SourceMoment,
        events: IO[str],
        directory: DumpDirectory,
        snapshots: ExternalSnapshots,
        observer: Observer,
    ) -> None:
        self._source = start.source
        self._policy = policy
        self._database = start.source.database
        self._unfinished = start.unfinished
        self._position = start.position
        self._moment = moment
        self._events = events
        self._directory = directory
        self._snapshots = snapshots
        self._documents = Documents(directory, start.source, observer, snapshots)
        self._observer = observer
        self._reader = PartitionReader(
            source=start.source,
            folded=moment.folded,
            transactions=moment.transactions,
            begun=begun_partitions(start.unfinished),
            kept=moment.kept,
        )

    def write(self, threads: int) -> _Contents:
        moment = self._moment
        self._events.seek(0)
        self._directory.write_text("events.jsonl", self._events)
        with self._source.pool.client() as client:
            functions = self._documents.write_database(client)
        with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="dump") as workers:
            jobs = [workers.submit(self._table, table) for table in moment.tables]
            written = {table.entry.name: table for job in jobs if (table := job.result())}
        with self._source.pool.client() as client:
            later = self._source.later(client, moment.folded.to_id)
        exchanged = self._exchanged(written, later)
        dumped = self._with_replicas(exchanged, written)
        tables = [
            with_exchanged(self._directory, each.entry, later, listed_after=each.listed_after)
            for each in dumped
        ]
        external = [entry for table in dumped for entry in table.external]
        self._check_external(tables, external)
        self._documents.write_external(external)
        self._snapshots.write_roots(self._directory)
        vanished = (moment.plans.keys() & self._position.tables.keys()) - {entry.name for entry in tables}
        losses = {table.entry.name: table.losses for table in dumped if table.losses}
        with self._source.pool.client() as client:
            # A later event explains that the target loses a table which may not stay.
            lost = {name for name in exchanged if later.evidence.lost_table(name)}
            unexplained = Unexplained(tables=vanished - lost, losses=losses)
            self._source.settle(client, unexplained, moment.folded.to_id)
        return _Contents(
            tables=tables,
            dropped=sorted(moment.absent.dropped | vanished),
            functions_gone=self._functions_gone({str(function.functionName) for function in functions}),
        )

    def _check_external(self, tables: Iterable[TableEntry], external: Sequence[ExternalEntry]) -> None:
        """Check the directories of all external tables, including those that an earlier dump describes."""
        if not self._policy.external_base:
            return
        dumped_here = {entry.table for entry in external}
        dumps = {
            entry.name: entry.dump
            for entry in tables
            if entry.kind is TableKind.EXTERNAL and entry.name not in dumped_here
        }
        check_external(self._policy, [*external, *dumped_entries(dumps, self._source.options)])

    def write_ends(self) -> int:
        """Write the transactions that ended, in their order, with their leaders; return their number."""
        moment = self._moment
        lost = (EndedTransaction(txn, True, txn) for txn, _ in lost_ends(moment.plans.values()))
        if self._policy.group:
            ends = separate_ends(moment.folded)
        else:
            ends = merged_ends(moment.folded, self._unfinished, moment.open_before.keys())
        return self._directory.write_ends(chain(lost, ends))

    def _table(self, named: types.Table) -> _DumpedTable | None:
        name = named.tableName
        plan = self._moment.plans[name]
        if plan.work is TableWork.NOTHING:
            return self._as_before(name)
        try:
            if plan.work is TableWork.CONTINUE and plan.write_ids and named.partitionKeys:
                write = partial(self._write_table, named, plan)
                dumped, listed_after = written_at_once(self._source, self._directory, write)
                return replace(dumped, listed_after=listed_after)
            return self._write_table(named, plan)
        except NoSuchObjectError:
            # A later event records its drop.
            self._observer(TableVanished(table=f"{self._database}.{name}"))
            return None

    def _as_before(self, name: str) -> _DumpedTable:
        before = self._moment.table_index.entries[name]
        dump = before.dump or self._position.dump
        return _DumpedTable(entry=replace(before, dump=dump, work=TableWork.NOTHING))

    def _exchanged(self, written: Mapping[str, _DumpedTable], later: LaterEvents) -> set[str]:
        """Return the tables whose names may have stood for others when their files were listed."""
        found = {name: table.entry.kind for name, table in written.items()}
        plans = {
            name: plan for name, plan in self._moment.plans.items() if plan.work is not TableWork.NOTHING
        }
        return {
            name
            for name, plan in plans.items()
            if is_exchanged(name, later, at_moment=plan.write_ids is not None, found=found.get(name))
        }

    def _with_replicas(
        self, exchanged: Collection[str], written: Mapping[str, _DumpedTable]
    ) -> list[_DumpedTable]:
        """Return the tables of the dump, with the replicas of those that were exchanged as they are.

        The files of the moment may be gone, and those that were found may be of another table. So the target
        keeps its replica, without the cycle's writes: the next increment has the event of the exchange. A
        dump that failed instead might never succeed where tables are exchanged all the time. A replica that a
        killed load has begun to change, or that the cycle repairs, may not stay, so the target loses it.
        """
        tables = []
        for name in self._moment.plans:
            if name not in exchanged:
                tables += [written[name]] if name in written else []
                continue
            stays = name in self._moment.staying
            tables += [self._as_before(name)] if stays else []
            self._observer(TableExchanged(table=f"{self._database}.{name}", replica_stays=stays))
        return tables

    def _write_table(self, named: types.Table, plan: TablePlan) -> _DumpedTable:
        name = named.tableName
        with self._source.pool.client() as client:
            table = self._documents.read_table(client, name, plan.write_ids)
            refuse_relocated(named, table, plan.work)
            kind = table_kind(table)
            constraints = client.get_table_constraints(self._database, name)
            home = self._home(name, plan)
            entries = self._moment.table_index.entries
            changed = home and self._reader.read(client, table, plan, entries[name], home)
            if home is not None and changed:
                dumped = self._write_some(table, plan, home, changed)
            else:
                dumped = self._write_all(client, table, plan, home)
        if plan.writes:
            self._directory.write_writes(name, plan.writes)
        self._directory.write_table(
            TableDocument(
                table=table,
                kind=kind,
                constraints=constraints,
                write_ids=plan.write_ids,
                places=dumped.places,
                snapshots=self._snapshots.of(name),
            )
        )
        self._observer(
            TableDumped(
                table=f"{self._database}.{name}",
                work=plan.work.value,
                files=dumped.entry.files,
                size_bytes=dumped.entry.size_bytes,
            )
        )
        return dumped

    def _home(self, name: str, plan: TablePlan) -> DumpDirectory | None:
        """Return the dump that describes the replica of a table that the cycle brings forward."""
        table_index = self._moment.table_index
        return table_index.of(name) if plan.work is TableWork.CONTINUE and name in table_index else None

    def _write_some(
        self, table: types.Table, plan: TablePlan, home: DumpDirectory, changed: ChangedPartitions
    ) -> _DumpedTable:
        """Write the partitions of a table that the cycle concerns."""
        name, totals = table.tableName, changed.totals
        changed.write(self._directory, home, name)
        entry = TableEntry(
            name=name,
            kind=table_kind(table),
            partitions=len(totals),
            files=sum(total.files for total in totals.values()),
            size_bytes=sum(total.size_bytes for total in totals.values()),
            dump=self._directory.uri,
            work=plan.work,
            recorded_changes=TableChanges(
                writes=len(plan.writes),
                renewed=renewed_partitions(
                    self._moment, self._directory, name, changed.places, transactional=True, whole=False
                ),
                gone=self._gone(name, changed.before, changed.places),
                concerned=tuple(sorted(changed.concerned)),
            ),
            reached=plan.reached,
            partition_names=names_digest(totals),
            rest=changed.rest,
            unsettled=changed.unsettled,
        )
        return _DumpedTable(entry=entry, losses=changed.losses)

    def _write_all(
        self, client: MetastoreClient, table: types.Table, plan: TablePlan, home: DumpDirectory | None
    ) -> _DumpedTable:
        """Write all partitions of a table."""
        name, kind = table.tableName, table_kind(table)
        text = plan.write_ids.text() if plan.write_ids else None
        partitions = (
            client.iter_partitions(self._database, name, with_column_stats=True, valid_write_ids=text)
            if table.partitionKeys and kind.has_files
            else ()
        )
        unsettled = Unsettled(plan.write_ids)
        places = self._documents.write_partitions(table, partitions, unsettled)
        totals, sightings = self._documents.write_files(
            table,
            kind,
            places,
            write_ids=plan.write_ids,
            transactions=self._moment.transactions,
            kept=self._moment.kept,
            unsettled=unsettled,
            # A repair trusts no earlier list.
            home=None if name in self._moment.repair_plan.tables else home,
        )
        before, evidence = partitions_before(home, name), self._moment.folded.evidence
        bare = sightings.bare(self._source.options) if kind.has_files else []
        losses = losses_of(name, places, bare=bare, home=home, before=before, evidence=evidence, kind=kind)
        changes = TableChanges(
            seed=plan.seed,
            writes=len(plan.writes),
            renewed=renewed_partitions(
                self._moment, self._directory, name, places, transactional=kind.transactional, whole=True
            )
            if plan.work is TableWork.CONTINUE
            else (),
            gone=self._gone(name, before, places),
        )
        return _DumpedTable(
            entry=TableEntry(
                name=name,
                kind=kind,
                partitions=places.partitions,
                files=totals.files,
                size_bytes=totals.size_bytes,
                dump=self._directory.uri,
                work=plan.work,
                recorded_changes=changes,
                reached=plan.reached,
                partition_names=names_digest(places.names()),
                unsettled=unsettled.names,
            ),
            losses=losses,
            external=external_tables.entries(name, places) if kind is TableKind.EXTERNAL else [],
            places=external_tables.listed_places(kind, places),
        )

    def _gone(self, name: str, before: Iterable[str], places: TableLocations) -> tuple[str, ...]:
        """Return the partitions that the source no longer has, of those before and those in events."""
        gone = {*before, *self._moment.folded.evidence.partitions(name)}
        return tuple(sorted(gone.difference(places.names())))

    def _functions_gone(self, there: Collection[str]) -> list[str]:
        """Return the functions that the source no longer has and whose drop an event records."""
        before = self._moment.table_index.directory.functions()
        names = {str(function.functionName) for function in before} | self._moment.folded.evidence.functions
        return [name for name in sorted(names - set(there)) if self._moment.folded.evidence.of_function(name)]

"""Reads the state of the source at the moment of an increment: its transactions, events and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.events import Event, TableEvent
from airflow_hive_federation.model.write_ids import ValidTxns
from airflow_hive_federation.progress.events import TableLeftOut
from airflow_hive_federation.progress.observers import Observer
from airflow_hive_federation.replication.dump import external_changes
from airflow_hive_federation.replication.dump.begun_tables import BegunTables
from airflow_hive_federation.replication.dump.change_manager import kept_by_source
from airflow_hive_federation.replication.dump.changed_partitions import begun_partitions
from airflow_hive_federation.replication.dump.cut import Cut
from airflow_hive_federation.replication.dump.event_fold import EventFold, EventReading, check_source, fold
from airflow_hive_federation.replication.dump.evidence import AbsentTables, judge_tables
from airflow_hive_federation.replication.dump.increment_plan import TablePlan, plan_table
from airflow_hive_federation.replication.dump.relocated import FormerPlaces, is_external_now, is_relocated
from airflow_hive_federation.replication.dump.removals import Unexplained
from airflow_hive_federation.replication.dump.source import ReplicatedSource
from airflow_hive_federation.replication.dump.source_history import check_history, is_another, note_event
from airflow_hive_federation.replication.dump.truncated import is_truncated
from airflow_hive_federation.replication.dump.unreadable_events import warn_of_unreadable
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import RepairPlan, SourceEvent
from airflow_hive_federation.replication.format.unfinished import UnfinishedLoads
from airflow_hive_federation.replication.metadata.database_properties import database_claims
from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.metadata.table_names import asked_for
from airflow_hive_federation.replication.metadata.write_ids import readable_write_ids
from airflow_hive_federation.replication.replica.position import TargetPosition
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.transactions.keeping import KeptFiles

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


@dataclass(frozen=True, kw_only=True)
class IncrementStart:
    """The source and target of an increment, before it is dumped.

    :param unfinished: the loads that were killed after they had begun to bring the target forward.
    :param repair_plan: the parts of the target to repair.
    """

    source: ReplicatedSource
    position: TargetPosition
    unfinished: UnfinishedLoads
    repair_plan: RepairPlan


@dataclass(frozen=True, kw_only=True)
class SourceMoment:
    """The state of the source at the cycle's moment.

    :param former: the directories from which its tables were copied.
    :param staying: tables that the target has as the dump before describes them, so that they could stay.
    """

    transactions: ValidTxns
    folded: EventFold
    events: int
    tables: Sequence[types.Table]
    plans: Mapping[str, TablePlan]
    skipped: Mapping[str, str]
    absent: AbsentTables
    table_index: TableIndex
    former: FormerPlaces
    open_before: Mapping[int, Mapping[str, int]]
    repair_plan: RepairPlan
    last_event: SourceEvent | None
    adopted: tuple[str, ...]
    kept: Mapping[str, str]
    staying: frozenset[str]

    def report(self, database: str, observer: Observer) -> None:
        """Report the tables that the policy selects but that are not replicated."""
        for name, why in sorted(asked_for(self.skipped).items()):
            observer(
                TableLeftOut(
                    table=f"{database}.{name}",
                    reason=why,
                    replica_stays=name in self.absent.kept,
                )
            )

    def idle(self) -> bool:
        """Return whether the target would not change, except for its last event."""
        folded = self.folded
        return not (
            folded.ends
            or self.repair_plan
            or folded.lost
            or folded.database_changed
            or folded.functions_changed
            or dict(folded.open_writes) != dict(self.open_before)
            or self.absent.dropped
            or self.absent.kept.keys() != self.table_index.retained
            or asked_for(self.skipped) != self.table_index.skipped
            or any(plan.work is not TableWork.NOTHING for plan in self.plans.values())
        )

    def to_read(self, database: str) -> list[str]:
        """Return the full names of the tables whose files the dump lists."""
        return [
            f"{database}.{name}" for name, plan in self.plans.items() if plan.work is not TableWork.NOTHING
        ]

    @classmethod
    def read(
        cls,
        client: MetastoreClient,
        start: IncrementStart,
        *,
        lease: int,
        spool: IO[str],
        cut: Cut | None,
    ) -> SourceMoment:
        """Read the source's state, and keep the files of its tables for a lease.

        Where the source's cleaner waits for locks, only tables that have changed are locked: the state is
        read without locks first, and once more under them.

        :param spool: receives the events of the moment.
        :param cut: the moment of a group of dumps, whose lease keeps the files.
        """
        if cut is not None:
            return cls._read(client, start, spool, cut)  # The group's lease keeps the files of the cut.
        database = start.source.database
        a_table = next(iter(start.position.tables), None)
        if a_table is None or not client.waits_for_locks(f"{database}.{a_table}"):
            # All tables are kept. The cut alone is repeated if tables come in between, which costs little.
            cut = KeptFiles(client, lease).take(
                lambda: [f"{database}.{table}" for table in client.list_tables(database)],
                lambda: Cut.now(client, lease),
            )
            return cls._read(client, start, spool, cut)
        moment: SourceMoment | None = None

        def tables() -> list[str]:
            return moment.to_read(database) if moment else []

        def read() -> SourceMoment:
            nonlocal moment
            moment = cls._read(client, start, spool, Cut.now(client, lease))
            return moment

        return KeptFiles(client, lease).take(tables, read)

    @classmethod
    def _read(cls, client: MetastoreClient, start: IncrementStart, spool: IO[str], cut: Cut) -> SourceMoment:
        spool.seek(0)
        spool.truncate()
        source, position, repair_plan = start.source, start.position, start.repair_plan
        last = DumpDirectory(position.dump, source.options)
        previous = last.manifest()
        table_index, changes = TableIndex(last), source.changes_since(previous.policy)
        database, from_id = source.database, position.last_id
        transactions, source_id = cut.transactions, cut.event_id
        check_source(from_id, source_id)
        check_history(client, previous.last_event)
        events = source.events(client, from_id, up_to=source_id)
        reading = EventReading(events, from_id, transactions, lambda event: spool.write(_event_line(event)))
        open_before = previous.open_writes
        folded = fold(
            reading,
            database,
            source_id=source_id,
            open_writes=open_before,
            transactions=transactions,
        )
        warn_of_unreadable(folded.unreadable, database, folded.doubtful)
        # This call fails if the database is gone, which would otherwise look like one without tables.
        properties = database_claims(client.get_database(database))
        before = database_claims(last.database())
        folded = replace(
            folded,
            functions_changed=folded.functions_changed or changes.functions_root,
            # A source that is itself a replica is altered by each of its own cycles.
            database_changed=folded.database_changed and properties != before,
        )
        tables, skipped = source.tables(client)
        absent = judge_tables(
            position.tables,
            replicated={wire_table.tableName for wire_table in tables},
            skipped=skipped,
            selects=source.selects,
            evidence=folded.evidence,
            # This policy has not made the tables that no dump describes; a repair is about to remove them.
            unwanted=changes.renamed | (repair_plan.tables - set(table_index)),
        )
        source.settle(client, Unexplained(tables=absent.unexplained), folded.to_id)
        write_ids = readable_write_ids(client, tables, transactions)
        former = FormerPlaces(table_index=table_index, unfinished=start.unfinished)
        begun = BegunTables(start.unfinished, position, table_index, previous.event_id)

        def another(table: types.Table) -> bool:
            """Return whether a table replaced the one dumped under its name without an event."""
            name = table.tableName
            return (
                folded.is_doubtful(name) and name in table_index and is_another(table, table_index.of(name))
            )

        def silent_change(table: types.Table) -> bool:
            """Return whether an external table has changed without an event."""
            name = table.tableName
            if table_kind(table) is not TableKind.EXTERNAL or name not in table_index:
                return False
            return changes.external_base or external_changes.files_changed(
                table_index.of(name), name, source.options, by_snapshot=source.external_snapshots
            )

        return cls(
            transactions=transactions,
            folded=folded,
            events=reading.count,
            tables=tables,
            plans={
                wire_table.tableName: plan_table(
                    wire_table.tableName,
                    write_ids.get(wire_table.tableName),
                    position.tables.get(wire_table.tableName),
                    folded,
                    # Foreign keys of other tables refer to renamed ones.
                    always=bool(changes.renamed)
                    or wire_table.tableName in repair_plan.tables
                    or wire_table.tableName in begun
                    or silent_change(wire_table),
                    replace=wire_table.tableName
                    in repair_plan.replaced | changes.renamed | table_index.retained
                    or another(wire_table)
                    or is_relocated(wire_table, folded, former, source.options)
                    or is_external_now(wire_table, folded, former)
                    or is_truncated(
                        wire_table,
                        write_ids.get(wire_table.tableName),
                        transactions,
                        folded,
                        former,
                        options=source.options,
                    ),
                )
                for wire_table in tables
            },
            skipped=skipped,
            absent=replace(absent, dropped=absent.dropped | absent.unexplained),
            table_index=table_index,
            former=former,
            open_before=open_before,
            repair_plan=repair_plan,
            last_event=note_event(client, folded.to_id) or previous.last_event,
            adopted=previous.adopted,
            kept=kept_by_source(client, database, folded),
            staying=frozenset(position.tables).intersection(table_index)
            - changes.renamed
            - repair_plan.tables
            - repair_plan.replaced
            # A killed load may have brought them forward.
            - begun_partitions(start.unfinished).keys(),
        )


def _event_line(event: Event) -> str:
    table = event.table if isinstance(event, TableEvent) else ""
    values = {"id": event.event_id, "type": event.event_type, "database": event.database, "table": table}
    return json.dumps(values, sort_keys=True, ensure_ascii=False) + "\n"

"""The incremental dump: what the source has become since the target's last event, written down.

::

    <dump_root>/<policy>/<from>-<to>-<lease>/
        events.jsonl     the cycle's events: id, type, database, table
        ends.jsonl       transactions that ended, in their order
        writes/<table>.jsonl  transactions and write ids to replay
        …                as a bootstrap's dump, for the tables concerned only

One moment for all tables, as at bootstrap: a list of the source's transactions, and the events up to it (see
:func:`~.increment_plan.events_at`). Unlike at bootstrap, a table is not cut below its lowest open write id:
the target gets open write ids as open ones. A transaction that ends later is a later cycle's business.

Nothing is written that the target has already but names: a table without an event costs nothing here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import chain
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any

from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import from_json, to_json
from airflow_hive_federation.model.events import Event, TableEvent, read_event
from airflow_hive_federation.model.write_ids import ValidTxns
from airflow_hive_federation.replication.dump import external_changes
from airflow_hive_federation.replication.dump.change_manager import kept_by_source
from airflow_hive_federation.replication.dump.contents import VisibleFile, readable_write_ids, visible_files
from airflow_hive_federation.replication.dump.directory import DumpDirectory, table_file
from airflow_hive_federation.replication.dump.drain import valid_transactions
from airflow_hive_federation.replication.dump.homes import Homes
from airflow_hive_federation.replication.dump.increment_plan import (
    EventFold,
    EventReading,
    TablePlan,
    TableWork,
    check_source,
    fold,
    lost_ends,
    plan_table,
)
from airflow_hive_federation.replication.dump.lease import end_lease, lease_of_a_dump
from airflow_hive_federation.replication.dump.other_partitions import other_partitions
from airflow_hive_federation.replication.dump.source_history import check_history, is_another, note_event
from airflow_hive_federation.replication.dump.tables import write_files, write_partitions
from airflow_hive_federation.replication.dump.unreadable_events import described, warn_of_unreadable
from airflow_hive_federation.replication.load.merging import Merging, leaders
from airflow_hive_federation.replication.load.unfinished import unfinished_loads
from airflow_hive_federation.replication.metadata import external_tables
from airflow_hive_federation.replication.metadata.database_properties import database_claims
from airflow_hive_federation.replication.metadata.definitions import TableKind, table_kind
from airflow_hive_federation.replication.metadata.places import Places
from airflow_hive_federation.replication.metadata.table_names import named_event, named_source, reason_to_skip
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.policy_changes import policy_changes
from airflow_hive_federation.replication.progress import counted
from airflow_hive_federation.replication.target.position import TargetPosition
from airflow_hive_federation.replication.verification.mends import Mend
from airflow_hive_federation.storage.filesystem import canonical

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool

logger = logging.getLogger(__name__)

KIND = "INCREMENT"
#: Transactions that ended, in the source's order; whether they were committed; which one leads each on the
#: target (see :mod:`.merging`).
ENDS = "ends.jsonl"


@dataclass(frozen=True, kw_only=True)
class IncrementSummary:
    """What an incremental dump contains. XCom-safe by :func:`dataclasses.asdict`.

    :param dump: URI of the dump; of an idle cycle, of the one the target was loaded from last.
    :param from_id: last event the target had.
    :param event_id: last event of the dump.
    :param events: number of events in between.
    :param tables: tables concerned.
    :param transactions: transactions that ended.
    :param lost: events were missing, so every table was looked at.
    :param unreadable: events that cannot be read, so that their tables were compared anew: at most 20.
    :param idle: there is nothing to do but to say that the target has got that far; no dump was written.
    """

    dump: str
    from_id: int
    event_id: int
    events: int
    tables: int
    files: int
    size_bytes: int
    transactions: int
    lease: int
    lost: bool
    idle: bool = False
    unreadable: Sequence[str] = ()


def dump_increment(
    pool: MetastorePool,
    policy: ReplicationPolicy,
    position: TargetPosition,
    *,
    mend: Mend | None = None,
    threads: int = 8,
    progress: Callable[[str], None] = logger.info,
) -> IncrementSummary:
    """Write the dump of what has happened since.

    :param pool: connections to the source.
    :param position: where the target stands, see :func:`~.target.position.read_position`.
    :param mend: what is to be mended of the target, beside what is new.
    :param threads: tables dumped side by side.
    :param progress: told what has been done.
    :raises NoSuchObjectError: the source database is gone.
    :raises SourceWentBackError: the source knows fewer events than the target has seen.
    :raises EventCorruptError: an event cannot be read, and not even its database is known.
    :raises UnknownEventError: an event has a type this version does not know.
    """
    pool = named_source(pool, policy)
    # Events go through a file: there may be millions, and where their dump is written is known at their end.
    with lease_of_a_dump(pool, policy=policy.name) as lease, TemporaryFile("w+", encoding="utf-8") as spool:
        with pool.client() as client:
            moment = _Moment.read(client, policy, position, lease=lease, mend=mend or Mend(), spool=spool)
        folded = moment.folded
        if moment.idle(position):
            end_lease(pool, lease)
            progress(f"{policy.source_database}: nothing to do up to event {folded.to_id}")
            return _idle_summary(moment, position)
        uri = f"{policy.directory}/{folded.from_id}-{folded.to_id}-{lease}"
        directory = DumpDirectory(uri, policy.storage_options)
        dump = _Dump(
            pool, policy, position, moment=moment, events=spool, directory=directory, progress=progress
        )
        facts = dump.write(threads)
        manifest = {
            "kind": KIND,
            "policy": policy.to_json(),
            "from_id": folded.from_id,
            "event_id": folded.to_id,
            "previous": position.dump,
            "lease": lease,
            "transactions": dump.write_ends(),
            "last_event": moment.last_event,
            "open_writes": [[txn, dict(writes)] for txn, writes in sorted(folded.open_writes.items())],
            "functions_changed": folded.functions_changed,
            "lost": folded.lost,
            "unreadable": described(folded.unreadable),
            "mend": moment.mend.to_json(),
            "adopted": moment.adopted,
            **facts,
        }
        directory.finish_dump(manifest)
    return summary_of(uri, manifest)


def summary_of(uri: str, manifest: Mapping[str, Any]) -> IncrementSummary:
    """The summary of an incremental dump."""
    concerned = [facts for facts in manifest["tables"] if facts["work"] != TableWork.NOTHING.value]
    return IncrementSummary(
        dump=uri,
        from_id=manifest["from_id"],
        event_id=manifest["event_id"],
        events=manifest["events"],
        tables=len(concerned),
        files=sum(facts["files"] for facts in concerned),
        size_bytes=sum(facts["size_bytes"] for facts in concerned),
        transactions=manifest["transactions"],
        lease=manifest["lease"],
        lost=manifest["lost"],
        unreadable=manifest.get("unreadable", ()),
    )


def _idle_summary(moment: _Moment, position: TargetPosition) -> IncrementSummary:
    return IncrementSummary(
        dump=position.dump,
        from_id=moment.folded.from_id,
        event_id=moment.folded.to_id,
        events=moment.events,
        tables=0,
        files=0,
        size_bytes=0,
        transactions=0,
        lease=0,
        lost=False,
        idle=True,
    )


@dataclass(frozen=True, kw_only=True)
class _Moment:
    """The source at the cycle's moment."""

    transactions: ValidTxns
    folded: EventFold
    events: int
    tables: Sequence[Any]
    plans: Mapping[str, TablePlan]
    skipped: Sequence[str]
    previous: Mapping[str, Any]
    open_before: Mapping[int, Mapping[str, int]]
    mend: Mend
    last_event: Mapping[str, Any] | None
    adopted: Sequence[str]
    kept: Mapping[str, str]

    def idle(self, position: TargetPosition) -> bool:
        """Whether nothing of the target would change, its last event excepted."""
        folded, names = self.folded, {table.tableName for table in self.tables}
        return not (
            folded.ends
            or self.mend
            or folded.lost
            or folded.database_changed
            or folded.functions_changed
            or dict(folded.open_writes) != dict(self.open_before)
            or position.tables.keys() - names
            or any(plan.work is not TableWork.NOTHING for plan in self.plans.values())
        )

    @classmethod
    def read(
        cls,
        client: MetastoreClient,
        policy: ReplicationPolicy,
        position: TargetPosition,
        *,
        lease: int,
        mend: Mend,
        spool: IO[str],
    ) -> _Moment:
        last = DumpDirectory(position.dump, policy.storage_options)
        previous = last.manifest()
        homes, changes = Homes(last), policy_changes(previous["policy"], policy)
        database, from_id = policy.source_database, position.last_id
        client.keep_history(lease, [f"{database}.{table}" for table in client.list_tables(database)])
        transactions = valid_transactions(client.get_open_txns())
        source_id = client.get_current_notification_event_id()
        check_source(from_id, source_id)
        check_history(client, previous.get("last_event"))
        found = (
            named_event(policy, read_event(raw))
            for raw in client.iter_notification_events(from_id, up_to=source_id)
        )
        reading = EventReading(found, from_id, transactions, lambda event: spool.write(_event_line(event)))
        open_before = dict(previous.get("open_writes", ()))
        folded = fold(
            reading,
            database,
            source_id=source_id,
            open_writes=open_before,
            transactions=transactions,
            lost_before=bool(previous.get("lost")),
        )
        warn_of_unreadable(folded.unreadable, database, folded.doubtful)
        # Gone, it would look like a database without tables.
        properties = database_claims(client.get_database(database))
        before = database_claims(from_json(types.Database, last.read_json("database.json")))
        folded = replace(
            folded,
            functions_changed=folded.functions_changed or changes.functions_root,
            # A source that is a replica itself is altered by each of its own cycles.
            database_changed=folded.database_changed and properties != before,
        )
        every: list[Any] = list(client.get_tables(database, client.list_tables(database)))
        tables = [one for one in every if not reason_to_skip(policy, one)]
        write_ids = readable_write_ids(client, tables, transactions)

        def another(table: Any) -> bool:
            """Whether a table is another one than was dumped under its name; events would say so."""
            name = table.tableName
            return folded.is_doubtful(name) and name in homes and is_another(table, homes.of(name))

        def silent_change(table: Any) -> bool:
            """Whether an external table has changed without an event."""
            name = table.tableName
            if table_kind(table) is not TableKind.EXTERNAL or name not in homes:
                return False
            return changes.external_base or external_changes.files_changed(
                homes.of(name), name, policy.storage_options
            )

        return cls(
            transactions=transactions,
            folded=folded,
            events=reading.count,
            tables=tables,
            plans={
                one.tableName: plan_table(
                    one.tableName,
                    write_ids.get(one.tableName),
                    position.tables.get(one.tableName),
                    folded,
                    # Foreign keys of others refer to them.
                    always=bool(changes.renamed) or one.tableName in mend.tables or silent_change(one),
                    replace=one.tableName in mend.replaced | changes.renamed or another(one),
                )
                for one in tables
            },
            skipped=sorted({one.tableName for one in every} - {one.tableName for one in tables}),
            previous=homes.facts,
            open_before=open_before,
            mend=mend,
            last_event=note_event(client, folded.to_id) or previous.get("last_event"),
            adopted=previous.get("adopted", ()),
            kept=kept_by_source(client, database, folded),
        )


class _Dump:
    def __init__(
        self,
        pool: MetastorePool,
        policy: ReplicationPolicy,
        position: TargetPosition,
        *,
        moment: _Moment,
        events: IO[str],
        directory: DumpDirectory,
        progress: Callable[[str], None],
    ) -> None:
        self._pool = pool
        self._policy = policy
        self._database = policy.source_database
        self._position = position
        self._moment = moment
        self._events = events
        self._directory = directory
        self._progress = progress

    def write(self, threads: int) -> dict[str, Any]:
        moment = self._moment
        self._events.seek(0)
        self._directory.write_text("events.jsonl", self._events)
        with self._pool.client() as client:
            self._directory.write_json("database.json", to_json(client.get_database(self._database)))
            functions = [to_json(function) for function in client.get_functions(self._database)]
            self._directory.write_lines("functions.jsonl", functions)
        with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="dump") as workers:
            jobs = [workers.submit(self._table, table) for table in moment.tables]
            tables = [facts for job in jobs if (facts := job.result())]
        external = [entry for facts in tables for entry in facts.pop("external", ())]
        self._directory.write_text(external_tables.FILE_NAME, external_tables.to_text(external))
        names = {facts["name"] for facts in tables}
        return {
            "events": moment.events,
            "tables": tables,
            "skipped": list(moment.skipped),
            "dropped": sorted(self._position.tables.keys() - names),
            "partitions": sum(facts["partitions"] for facts in tables),
        }

    def write_ends(self) -> int:
        """Write which transactions ended, in their order, and how they are replayed; return how many."""
        folded, lost = self._moment.folded, lost_ends(self._moment.plans.values())
        # A load that was killed has opened transactions that had not ended by then.
        unfinished = list(unfinished_loads(self._policy, self._position.dump))
        alone = chain(self._moment.open_before, *map(open_transactions, unfinished))
        begun = [merging_of(dump) for dump in unfinished]
        led = leaders((txn for txn, _ in folded.ends), folded.writes, set(alone), begun)
        lines = chain(
            ([txn, True, txn] for txn, _ in lost),
            (
                [txn, bool(committed), leader]
                for (txn, committed), leader in zip(folded.ends, led, strict=True)
            ),
        )
        return self._directory.write_lines(ENDS, lines)

    def _table(self, named: Any) -> dict[str, Any] | None:
        name = named.tableName
        plan = self._moment.plans[name]
        if plan.work is TableWork.NOTHING:
            before = dict(self._moment.previous[name])
            return {**before, "dump": before.get("dump", self._position.dump), "work": plan.work.value}
        try:
            return self._write_table(name, plan)
        except NoSuchObjectError:
            # Its drop is a later event.
            self._progress(f"{self._database}.{name} was dropped meanwhile and is left out.")
            return None

    def _write_table(self, name: str, plan: TablePlan) -> dict[str, Any]:
        text = plan.write_ids.text() if plan.write_ids else None
        with self._pool.client() as client:
            table = client.get_table(self._database, name, with_column_stats=True, valid_write_ids=text)
            kind = table_kind(table)
            constraints = client.get_table_constraints(self._database, name)
            partitions = (
                client.iter_partitions(self._database, name, with_column_stats=True, valid_write_ids=text)
                if table.partitionKeys and kind.has_files
                else ()
            )
            places = write_partitions(
                self._directory,
                table,
                counted(partitions, f"{self._database}.{name}: partitions read", self._progress),
            )
        transactions, options = self._moment.transactions, self._policy.storage_options
        files = visible_files(table, places, plan.write_ids, transactions, options=options)
        totals = write_files(self._directory, name, self._with_kept(files))
        if plan.writes:
            self._directory.write_lines(writes_file(name), plan.writes)
        document = {
            "table": to_json(table),
            "kind": kind.value,
            "constraints": to_json(constraints),
            "write_ids": text,
            "places": [[root.partition, root.location] for root in external_tables.roots(places)]
            if kind is TableKind.EXTERNAL
            else [],
        }
        self._directory.write_json(table_file("tables", name, ".json"), document)
        self._progress(
            f"{self._database}.{name}: {plan.work.value}, {totals.files} files, {totals.size_bytes} bytes"
        )
        return {
            "name": name,
            "kind": kind.value,
            "partitions": places.partitions,
            **asdict(totals),
            "dump": self._directory.uri,
            "work": plan.work.value,
            "seed": plan.seed,
            "writes": len(plan.writes),
            "renewed": self._renewed(name, places) if plan.work is TableWork.CONTINUE else [],
            "external": external_tables.entries(name, places) if kind is TableKind.EXTERNAL else [],
        }

    def _renewed(self, name: str, places: Places) -> list[str]:
        """Partitions whose names stood for others on the target."""
        folded = self._moment.folded
        gone = set(folded.partitions_gone.get(name, ()))
        if folded.is_doubtful(name) and places.partitions:
            homes = Homes(DumpDirectory(self._position.dump, self._policy.storage_options))
            gone |= other_partitions(homes.of(name), self._directory, name) if name in homes else set()
        return sorted(gone.intersection(places.names())) if gone else []

    def _with_kept(self, files: Iterable[VisibleFile]) -> Iterator[VisibleFile]:
        """Note of each file where the source's change manager keeps it, if it has been removed."""
        kept = self._moment.kept
        if not kept:
            return iter(files)
        return (replace(one, kept=kept.get(canonical(one.uri), "")) for one in files)


def open_transactions(dump: DumpDirectory) -> Iterator[int]:
    """Transactions of the source that had not ended at a dump."""
    return (txn for txn, _ in dump.manifest().get("open_writes", ()))


def merging_of(dump: DumpDirectory) -> Merging:
    """Which transactions of a dump's end stand for others."""
    return Merging((txn, leader) for txn, _, leader in dump.read_lines(ENDS))


def writes_file(table: str) -> str:
    """Where a dump has a table's pairs of transaction and write id."""
    return table_file("writes", table, ".jsonl")


def _event_line(event: Event) -> str:
    table = event.table if isinstance(event, TableEvent) else ""
    values = {"id": event.event_id, "type": event.event_type, "database": event.database, "table": table}
    return json.dumps(values, sort_keys=True, ensure_ascii=False) + "\n"

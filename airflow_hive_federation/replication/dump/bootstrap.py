"""Writes the bootstrap dump: the state of the source at one moment.

All ACID tables are dumped at one cut. The transactions that were open at the start of the bootstrap have
ended (see :mod:`.drain`); all later ones belong to the increments, so a table is cut just below its lowest
write id that is still open. Listing happens under a read transaction (see :mod:`.lease`). Without it, the
cleaner could remove the inputs of a compaction finished after the cut before they are listed, and rows would
be missing without an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.progress.events import (
    BootstrapDumped,
    TableDumped,
    TableExchanged,
    TableLeftOut,
    TableVanished,
)
from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.replication.dump.change_manager import kept_for_bootstrap
from airflow_hive_federation.replication.dump.contents import cut_below_open
from airflow_hive_federation.replication.dump.cut import Cut
from airflow_hive_federation.replication.dump.documents import Documents
from airflow_hive_federation.replication.dump.drain import DrainStart
from airflow_hive_federation.replication.dump.external_snapshots import ExternalSnapshots
from airflow_hive_federation.replication.dump.later_events import LaterEvents, is_exchanged
from airflow_hive_federation.replication.dump.removals import refuse_missing
from airflow_hive_federation.replication.dump.source import ReplicatedSource
from airflow_hive_federation.replication.dump.source_directories import new_directories_missing
from airflow_hive_federation.replication.dump.source_history import note_event
from airflow_hive_federation.replication.dump.tables import Unsettled
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.dumped_policy import DumpedPolicy
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind
from airflow_hive_federation.replication.format.manifest import Manifest, TableEntry
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.metadata import external_tables, statistics
from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.metadata.directories import check_external
from airflow_hive_federation.replication.metadata.external_tables import ExternalEntry
from airflow_hive_federation.replication.metadata.table_names import asked_for
from airflow_hive_federation.replication.metadata.write_ids import readable_write_ids
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.foreign_writes import names_digest
from airflow_hive_federation.transactions.keeping import KeptFiles
from airflow_hive_federation.transactions.lease import lease_of_a_dump

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool


@dataclass(frozen=True, kw_only=True)
class DumpSummary:
    """The numbers of a dump. XCom-safe by :func:`dataclasses.asdict`.

    :param dump: its URI.
    :param skipped: the tables of the source that the policy selects but that are not replicated, each with
        the reason.
    """

    dump: str
    event_id: int
    tables: int
    partitions: int
    files: int
    size_bytes: int
    lease: int
    skipped: dict[str, str] = field(default_factory=dict)


def dump_bootstrap(
    pool: MetastorePool,
    policy: ReplicationPolicy,
    start: DrainStart,
    *,
    adopted: bool = False,
    cut: Cut | None = None,
    threads: int = 8,
    observer: Observer = LOGGED,
) -> DumpSummary:
    """Write the dump of a database, or return the summary of a finished one.

    :param pool: connections to the source.
    :param start: the result of :func:`~.drain.begin_drain`; its transactions must have ended.
    :param adopted: the target already has all tables, although they carry no marker of the policy.
    :param cut: the moment of a group of dumps, after the drain; by default, the dump takes a cut of its own.
    :param threads: number of tables dumped in parallel.
    :param observer: receives the events of progress.
    :raises NoSuchObjectError: the source has no such database.
    :raises SourceDirectoryMissingError: a table's directory does not exist; Hive's replication fails then,
        too.
    :raises LocationConflictError: tables would share or nest directories of the target.
    :raises HiddenLocationError: Hive would hide external tables of the target.
    :raises SourceNotAllowedError: tables, links in them, or jars of functions lie outside of the directories
        from which the policy may copy.
    """
    source = ReplicatedSource(pool, policy)
    directory = DumpDirectory(f"{policy.directory}/{start.dump_name}", policy.storage_options)
    if directory.dump_finished:
        return _finished(directory, observer, earlier=True)
    with lease_of_a_dump(source.pool, policy=policy.name, given=cut.lease if cut else None) as held_lease:
        lease = held_lease.txn_id
        directory.write_json("_begun.json", {"policy": policy.to_json(), **start.to_json()})
        with source.pool.client() as client:
            last_event = note_event(client, start.event_id)
        tables, skipped = _Dump(source, policy, directory, observer=observer, lease=lease, cut=cut).write(
            threads
        )
        held_lease.check()
        directory.finish_dump(
            Manifest(
                kind=DumpKind.BOOTSTRAP,
                policy=DumpedPolicy.of(policy),
                event_id=start.event_id,
                last_event=last_event,
                adopted=tuple(entry.name for entry in tables) if adopted else (),
                lease=lease,
                tables=tuple(tables),
                skipped=skipped,
                partitions=sum(entry.partitions for entry in tables),
                dumped_files=sum(entry.files for entry in tables),
                size_bytes=sum(entry.size_bytes for entry in tables),
            )
        )
    return _finished(directory, observer)


def _finished(directory: DumpDirectory, observer: Observer, *, earlier: bool = False) -> DumpSummary:
    summary = _summary(directory)
    observer(
        BootstrapDumped(
            dump=summary.dump,
            tables=summary.tables,
            partitions=summary.partitions,
            files=summary.files,
            earlier=earlier,
        )
    )
    return summary


def _summary(directory: DumpDirectory) -> DumpSummary:
    manifest = directory.manifest()
    return DumpSummary(
        dump=directory.uri,
        event_id=manifest.event_id,
        tables=len(manifest.tables),
        partitions=manifest.partitions,
        files=manifest.dumped_files,
        size_bytes=manifest.size_bytes,
        lease=manifest.lease,
        skipped=asked_for(manifest.skipped),
    )


@dataclass(frozen=True, kw_only=True)
class _DumpedTable:
    """A table whose documents are written.

    :param missing: directories that do not exist.
    :param external: the directories of an external table.
    """

    entry: TableEntry
    missing: Sequence[str]
    external: Sequence[ExternalEntry]


class _Dump:
    """Writes one dump. It takes the cut (transactions, write ids) once, for all tables."""

    def __init__(
        self,
        source: ReplicatedSource,
        policy: ReplicationPolicy,
        directory: DumpDirectory,
        *,
        observer: Observer,
        lease: int,
        cut: Cut | None,
    ) -> None:
        self._source = source
        self._lease = lease
        self._cut = cut
        self._policy = policy
        self._database = source.database
        self._directory = directory
        self._snapshots = ExternalSnapshots(policy, lease=lease, observer=observer, first=True)
        self._documents = Documents(directory, source, observer, self._snapshots)
        self._observer = observer
        self._kept: Mapping[str, str] = {}

    def write(self, threads: int) -> tuple[list[TableEntry], dict[str, str]]:
        """Write all but the manifest.

        :return: the entries of the tables, and for each of the others the reason for which it is left out.
        """
        with self._source.pool.client() as client:
            self._documents.write_database(client)
            # A group's cut precedes the list of tables, and any other one follows it.
            since = self._cut.event_id if self._cut else client.get_current_notification_event_id()
            tables, skipped = self._tables(client)
            if (cut := self._cut) is None:
                names = [
                    f"{acid_table.dbName}.{acid_table.tableName}"
                    for acid_table in tables
                    if table_kind(acid_table).transactional
                ]
                cut = KeptFiles(client, self._lease).take(lambda: names, lambda: Cut.now(client, self._lease))
            transactions = cut.transactions
            readable = readable_write_ids(client, tables, transactions)
            write_ids = {name: cut_below_open(ids) for name, ids in readable.items()}
            self._kept = kept_for_bootstrap(client, self._database)
        with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="dump") as workers:
            jobs = [
                workers.submit(self._write_table, table, write_ids.get(table.tableName), transactions)
                for table in tables
            ]
            written = [table for job in jobs if (table := job.result())]
        with self._source.pool.client() as client:
            later = self._source.later(client, since)
        dumped = [table for table in written if not self._is_exchanged(table, write_ids, later)]
        refuse_missing(self._database, {table.entry.name: table.missing for table in dumped if table.missing})
        external = [entry for table in dumped for entry in table.external]
        if self._policy.external_base:
            check_external(self._policy, external)
        self._documents.write_external(external)
        self._snapshots.write_roots(self._directory)
        return [table.entry for table in dumped], skipped

    def _is_exchanged(
        self, table: _DumpedTable, write_ids: Mapping[str, ValidWriteIds], later: LaterEvents
    ) -> bool:
        """Return whether a name may have stood for another table when its files were listed.

        Such a table is left out, as a dropped one is: the increments have the event, and create the table
        that has its name then.
        """
        name = table.entry.name
        exchanged = is_exchanged(name, later, at_moment=name in write_ids, found=table.entry.kind)
        if exchanged:
            self._observer(TableExchanged(table=f"{self._database}.{name}", replica_stays=False))
        return exchanged

    def _tables(self, client: MetastoreClient) -> tuple[list[types.Table], dict[str, str]]:
        """Return the tables to dump, and for each of the others the reason for which it is left out."""
        tables, skipped = self._source.tables(client)
        for name, why in sorted(asked_for(skipped).items()):
            self._observer(TableLeftOut(table=f"{self._database}.{name}", reason=why))
        return tables, skipped

    def _write_table(
        self, named: types.Table, write_ids: ValidWriteIds | None, transactions: ValidTxns
    ) -> _DumpedTable | None:
        name = named.tableName
        try:
            with self._source.pool.client() as client:
                table = self._documents.read_table(client, name, write_ids)
                kind = table_kind(table)
                constraints = client.get_table_constraints(self._database, name)
                partitioned = table.partitionKeys and kind.has_files
                unsettled = Unsettled(write_ids)
                partitions = statistics.iter_partitions(client, table) if partitioned else ()
                places = self._documents.write_partitions(table, partitions, unsettled)
        except NoSuchObjectError:
            # Its drop is an event that the increments read.
            self._observer(TableVanished(table=f"{self._database}.{name}"))
            return None
        totals, sightings = self._documents.write_files(
            table,
            kind,
            places,
            write_ids=write_ids,
            transactions=transactions,
            kept=self._kept,
            unsettled=unsettled,
        )
        self._directory.write_table(
            TableDocument(
                table=table,
                kind=kind,
                constraints=constraints,
                write_ids=write_ids,
                places=external_tables.listed_places(kind, places),
                snapshots=self._snapshots.of(name),
            )
        )
        self._observer(
            TableDumped(
                table=f"{self._database}.{name}",
                partitions=places.partitions,
                files=totals.files,
                size_bytes=totals.size_bytes,
            )
        )
        return _DumpedTable(
            entry=TableEntry(
                name=name,
                kind=kind,
                partitions=places.partitions,
                partition_names=names_digest(places.names()),
                reached=write_ids.high_watermark if write_ids else 0,
                files=totals.files,
                size_bytes=totals.size_bytes,
                unsettled=unsettled.names,
            ),
            missing=(
                new_directories_missing(sightings.bare(self._source.options), kind) if kind.has_files else []
            ),
            external=external_tables.entries(name, places) if kind is TableKind.EXTERNAL else [],
        )

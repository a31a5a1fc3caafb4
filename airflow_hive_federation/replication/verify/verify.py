"""Verifies that a replica equals the dump from which it was loaded.

Four comparisons each name the differences: the definitions (of database, functions, tables, constraints and
partitions) against the target's metastore; the write ids that a reader of the target gets; the files that
such a reader would open, by name, size and digest; and the rows that both sides show, counted by Spark from
the files. A replica is read like any table, from the target's own metastore and listing, never from records
of the load.

Unreadable rows are no difference, because nothing is known of them. Such a read is a failure of the
verification; it names table, side and reason, and no repair acts on it.

The source continues to change meanwhile. Its state at the dump's cut is in the dump. Its files of that time
never change, and exist until a compaction has replaced them and the cleaner has removed them. If files of a
table are gone, the digests that they had when they were copied are compared, and the report notes that.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from airflow_hive_federation.acid.names import ACID_VERSION
from airflow_hive_federation.errors import (
    CycleRunningError,
    NoSuchObjectError,
)
from airflow_hive_federation.model.write_ids import ValidTxns
from airflow_hive_federation.progress.events import ComparedByDigests, ReplicaCompared, TableNotCompared
from airflow_hive_federation.progress.kinds import Activity
from airflow_hive_federation.progress.observers import LOGGED, Observer, counted
from airflow_hive_federation.replication.dump.contents import visible_files
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.job_records import SideRows
from airflow_hive_federation.replication.metadata.locations import relative_to
from airflow_hive_federation.replication.metadata.table_locations import TableLocations
from airflow_hive_federation.replication.metadata.table_names import named_source
from airflow_hive_federation.replication.metadata.write_ids import readable_write_ids, valid_transactions
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.database import find_layout
from airflow_hive_federation.replication.replica.differences import (
    ROW_DIGEST,
    Difference,
    database_differences,
    metadata_differences,
)
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.replication.verify.partition_formats import PartitionFormats
from airflow_hive_federation.replication.verify.report import (
    ReadFailure,
    TableReport,
    VerificationReport,
)
from airflow_hive_federation.replication.verify.table_contents import TableContents, dumped_formats
from airflow_hive_federation.replication.verify.unverified import keep_report
from airflow_hive_federation.storage.digests import FileDigest, FileToDigest
from airflow_hive_federation.storage.filesystem import canonical, join
from airflow_hive_federation.storage.listing import list_many
from airflow_hive_federation.storage.plan_files import read_record_parts, write_records
from airflow_hive_federation.transactions.lease import files_kept

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool

#: The digest of a version file, which a load writes for a base without files.
_VERSION_DIGEST = hashlib.sha256(ACID_VERSION.encode()).hexdigest()
#: Carries out a verification job, given the URIs of the directory with the plan and of the one for its
#: results; returns the URI of the results if it is another one.
VerifyRunner = Callable[[str, str], str | None]


def verify_replica(
    pool: MetastorePool,
    policy: ReplicationPolicy,
    dump: str,
    *,
    run_verify: VerifyRunner,
    source: MetastorePool | None = None,
    tables: Collection[str] | None = None,
    row_digests: bool = False,
    observer: Observer = LOGGED,
) -> VerificationReport:
    """Compare a target with the dump from which it was loaded.

    Both sides may stay in use: their cleaners leave the files that are read.

    :param pool: connections to the target.
    :param dump: URI of the dump of a bootstrap or an increment.
    :param run_verify: reads files by Spark: digests of the target's, rows of both sides. Not called if no
        file is to be read.
    :param tables: tables whose files, rows, statistics, constraints and partitions' definitions are compared;
        all by default. Definitions, partitions' names and write ids of all tables are compared in any case.
    :param source: connections to the source, whose cleaner is held back; without them, the rows of files that
        the cleaner removes meanwhile are not compared.
    :param row_digests: compare digests of all rows, not only their number: rows are then read whole.
    :raises DumpCorruptError: the dump is not as it was written.
    :raises CycleRunningError: the target was loaded from another dump meanwhile.
    """
    directory = DumpDirectory(dump, policy.storage_options)
    verification = _Verification(pool, policy, directory, tables, row_digests=row_digests, observer=observer)
    with pool.client() as client:
        layout, closely = find_layout(client, policy), verification.names
        differences = database_differences(client, layout, verification.table_index)
        differences += metadata_differences(client, layout, verification.table_index, closely=closely)
    # If a table itself differs, its files add nothing.
    without = {difference.table for difference in differences}
    with ExitStack() as stack:
        named = source and named_source(source, policy)
        for side, database in ((named, policy.source_database), (pool, policy.target_database)):
            if side and (names := verification.transactional(without)):
                stack.enter_context(files_kept(side, database, names, policy=policy.name))
        verification.read_files(run_verify, without=without)
    differences += verification.file_differences()
    differences += verification.row_differences()
    failures = list(verification.failures())
    if differences or failures:
        with pool.client() as client:
            _refuse_overtaken(client, policy, directory.uri)
    report = VerificationReport(
        database=policy.target_database,
        event_id=verification.event_id,
        tables=list(verification.reports(differences)),
        differences=differences,
        not_compared=verification.table_index.skipped,
        failures=failures,
    )
    for name, why in sorted(report.not_compared.items()):
        observer(TableNotCompared(table=f"{policy.target_database}.{name}", reason=why))
    if report.tables:
        keep_report(directory, report, tables)
    observer(
        ReplicaCompared(
            database=policy.target_database,
            tables=len(report.tables),
            differences=len(differences),
            unreadable=len(failures),
        )
    )
    return report


def _refuse_overtaken(client: MetastoreClient, policy: ReplicationPolicy, dump: str) -> None:
    try:
        parameters = client.get_database(policy.target_database).parameters or {}
    except NoSuchObjectError:
        return
    loaded = parameters.get(markers.CHECKPOINT, dump)
    if loaded != dump:
        raise CycleRunningError(
            f"Target database {policy.target_database} was loaded from {loaded} meanwhile: it no longer "
            f"matches dump {dump}.",
            remedy="Verify it without naming a dump, or after its next cycle.",
            policy=policy.name,
            holder=loaded,
        )


class _Verification:
    def __init__(
        self,
        pool: MetastorePool,
        policy: ReplicationPolicy,
        directory: DumpDirectory,
        tables: Collection[str] | None,
        *,
        row_digests: bool,
        observer: Observer,
    ) -> None:
        self.table_index = TableIndex(directory)
        self._pool = pool
        self._policy = policy
        self._database = policy.target_database
        self._directory = directory
        self.event_id = directory.manifest().event_id
        self._tables = [
            self.table_index.entries[name] for name in self.table_index if tables is None or name in tables
        ]
        self._observer = observer
        self._with_row_digests = row_digests
        self._layout = TargetLayout(policy=policy, managed="")
        self._contents: dict[str, TableContents] = {}
        self._rows: dict[tuple[str, str], int | None] = {}
        self._row_digests: dict[tuple[str, str], str] = {}
        self._unreadable: dict[tuple[str, str], str] = {}
        self._gone_meanwhile: dict[str, str] = {}
        self._not_counted: dict[str, str] = {}
        self._digests: dict[str, str] = {}

    @property
    def names(self) -> set[str]:
        """Return the tables that are compared closely."""
        return {entry.name for entry in self._tables}

    def transactional(self, without: Collection[str]) -> list[str]:
        """Return those of them whose files a cleaner may remove."""
        return [
            entry.name for entry in self._tables if entry.kind.transactional and entry.name not in without
        ]

    # -- files -----------------------------------------------------------------------------------------

    def read_files(self, run_verify: VerifyRunner, *, without: Collection[str] = ()) -> None:
        """Run the Spark job that takes digests of the target's files and counts the rows of both sides.

        :param without: tables that are not read.
        """
        with self._pool.client() as client:
            transactions = valid_transactions(client.get_open_txns())
            self._layout = find_layout(client, self._policy)
            for entry in self._tables:
                if entry.kind.has_files and entry.name not in without:
                    self._contents[entry.name] = self._table_contents(client, entry.name, transactions)
        if not self._contents:
            return
        # Each run has a directory of its own: yesterday's digest verifies nothing today.
        run = f"verify/{time.time_ns()}"
        self._directory.write_lines(
            f"{run}/tables.jsonl",
            (
                line.to_json()
                for contents in self._contents.values()
                for line in contents.plan(row_digests=self._with_row_digests)
            ),
        )
        options = self._policy.storage_options
        write_records(f"{self._directory.uri}/{run}/files.jsonl", self._to_digest(), options=options)
        plan = f"{self._directory.uri}/{run}"
        results = run_verify(plan, plan) or plan
        # An earlier try of a task may have asked for them.
        read = results.removeprefix(f"{self._directory.uri}/")
        for result in self._directory.read_report(f"{read}/rows.jsonl", SideRows.from_json):
            self._rows[result.table, result.side] = result.rows
            if result.row_digest is not None:
                self._row_digests[result.table, result.side] = result.row_digest
            if result.not_counted is not None:
                self._not_counted[result.table] = result.not_counted
            if result.unreadable is not None and result.side == "source" and result.vanished:
                # The files vanished meanwhile. As for files that vanished before, the digests of their copies
                # are compared.
                self._gone_meanwhile[result.table] = result.unreadable
            elif result.unreadable is not None:
                self._unreadable[result.table, result.side] = result.unreadable
        for record in read_record_parts(f"{results}/digests", FileDigest, options=options):
            self._digests[canonical(record.uri)] = record.digest

    def _to_digest(self) -> Iterator[FileToDigest]:
        """Yield the target's files, and the source's files that a killed load left without a record."""
        for name, contents in self._contents.items():
            known = self.table_index.digests(name)
            for file in contents.target:
                yield FileToDigest(uri=file.uri, size_bytes=file.size_bytes)
            for file in contents.source if not contents.note else ():
                target = canonical(self._layout.file(contents.document, file))
                if target not in known and not (file.filtered or file.empty_base):
                    contents.unrecorded[target] = canonical(file.uri)
                    yield FileToDigest(uri=file.uri, size_bytes=file.size_bytes)

    def _table_contents(self, client: MetastoreClient, name: str, transactions: ValidTxns) -> TableContents:
        home = self.table_index.of(name)
        document = home.table(name)
        source = list(home.files(name))
        table = client.get_table(self._database, name)
        partitions = client.iter_partitions(self._database, name) if table.partitionKeys else ()
        partitions = counted(partitions, f"{self._database}.{name}", Activity.READ, self._observer)
        formats = PartitionFormats.of(table)
        places = TableLocations(table, formats.noting(table, partitions))
        write_ids = readable_write_ids(client, [table], transactions).get(name)
        return TableContents(
            document=document,
            table=table,
            source=source,
            target=list(
                visible_files(
                    table,
                    places,
                    write_ids,
                    transactions,
                    options=self._policy.storage_options,
                )
            ),
            target_write_ids=write_ids,
            source_formats=dumped_formats(home, document),
            target_formats=formats.among(place.location for place in places),
            note=self._gone(
                name,
                source,
                document.location,
                immutable=document.kind.transactional,
            ),
        )

    def _gone(self, name: str, source: Sequence[VisibleFile], root: str, *, immutable: bool) -> str:
        """Return a note if the source has lost files of the dump; empty if it has all of them."""
        # One listing of the table's directory covers all partitions inside it.
        roots = sorted(
            {root if relative_to(file.directory, root) is not None else file.directory for file in source}
        )
        listings = list_many(roots, options=self._policy.storage_options, missing_ok=True)
        present = {
            canonical(join(top, entry.path)): (entry.size_bytes, entry.modified_ns)
            for top, entries in listings.items()
            for entry in entries
        }

        def lasts(file: VisibleFile) -> bool:
            size_bytes, modified_ns = present.get(canonical(file.uri), (-1, 0))
            return size_bytes == file.size_bytes and (immutable or modified_ns == file.modified_ns)

        gone = [file for file in source if not file.empty_base and not lasts(file)]
        if not gone:
            return ""
        note = f"{len(gone)} of {len(source)} files of the source no longer exist, or were changed"
        self._observer(ComparedByDigests(table=f"{self._database}.{name}", reason=note))
        return note

    def file_differences(self) -> Iterator[Difference]:
        """Compare the files that readers of both sides open, except in partitions compacted by the target."""
        for name, contents in self._contents.items():
            recorded = self.table_index.digests(name)
            read = {uri: self._digests.get(of, "unread") for uri, of in contents.unrecorded.items()}
            made = {
                canonical(self._layout.file(contents.document, file)): _VERSION_DIGEST
                for file in contents.source
                if file.empty_base
            }
            digests = {**recorded, **read, **made}
            compacted = contents.compacted_partitions()
            expected = {
                canonical(self._layout.file(contents.document, file))
                for file in contents.source
                if file.partition not in compacted
            }
            on_target = {canonical(file.uri) for file in contents.target if file.partition not in compacted}
            for uri in sorted(expected | on_target):
                wanted = digests.get(uri, "not copied") if uri in expected else "no file"
                present = self._digests.get(uri, "unread") if uri in on_target else "no file"
                if wanted != present:
                    yield Difference(table=name, where=uri, what="file", expected=wanted, found=present)

    # -- rows ------------------------------------------------------------------------------------------

    def reports(self, differences: Sequence[Difference]) -> Iterator[TableReport]:
        """Yield one report per table."""
        differing = {difference.table for difference in differences if difference.what == "file"}
        for entry in self._tables:
            name = entry.name
            yield TableReport(
                name=name,
                kind=entry.kind.value,
                source_rows=self._rows.get((name, "source")),
                target_rows=self._rows.get((name, "target")),
                files=entry.files,
                size_bytes=entry.size_bytes,
                digest_equal=not entry.kind.has_files or (name in self._contents and name not in differing),
                note=self._note(name),
            )

    def _note(self, name: str) -> str:
        note = self._contents[name].note if name in self._contents else ""
        return note or self._gone_meanwhile.get(name, "") or self._not_counted.get(name, "")

    def failures(self) -> Iterator[ReadFailure]:
        """Yield the tables whose rows could not be read on one side or the other."""
        for (name, side), reason in sorted(self._unreadable.items()):
            yield ReadFailure(table=name, side=side, reason=reason)

    def row_differences(self) -> Iterator[Difference]:
        """Yield the tables whose rows differ between the two sides; rows that were not read yield nothing."""
        for name in self._contents:
            source, target = (self._rows.get((name, side)) for side in ("source", "target"))
            if source is None or target is None:
                continue
            if source != target:
                yield Difference(table=name, what="rows", expected=str(source), found=str(target))
                continue
            wanted, present = (self._row_digests.get((name, side)) for side in ("source", "target"))
            if wanted != present:
                yield Difference(table=name, what=ROW_DIGEST, expected=str(wanted), found=str(present))

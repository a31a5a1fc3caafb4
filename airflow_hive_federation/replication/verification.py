"""Is the replica what was dumped?

Four comparisons, each naming what differs: definitions and partitions, against the target's metastore; write
ids a reader of the target gets; the files such a reader would open, by name, size and digest; and the rows
both sides show, counted by Spark from the files. A replica is read the way any reader reads it, from the
target's own metastore and listing, never from what the load believes it has done.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import VerificationError
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.model.write_ids import ValidTxns
from airflow_hive_federation.replication.bootstrap import dumped_files
from airflow_hive_federation.replication.contents import VisibleFile, readable_write_ids, visible_files
from airflow_hive_federation.replication.definitions import TableKind
from airflow_hive_federation.replication.differences import Difference, metadata_differences
from airflow_hive_federation.replication.dump_directory import DumpDirectory, table_file
from airflow_hive_federation.replication.layout import TargetLayout
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.target import find_layout
from airflow_hive_federation.replication.transactions import valid_transactions
from airflow_hive_federation.storage.digests import FileDigest, FileToDigest
from airflow_hive_federation.storage.filesystem import canonical
from airflow_hive_federation.storage.plan_files import read_outcomes, read_record_parts, write_records

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool

logger = logging.getLogger(__name__)

#: Carries out a verification job: URI of the directory with the plan, URI of the one for its results.
VerifyRunner = Callable[[str, str], None]


@dataclass(frozen=True, kw_only=True)
class TableReport:
    """One table of a report.

    :param source_rows: rows a reader of the source saw at the dump's write ids; ``None`` where the format is
        not counted, and for views.
    :param target_rows: rows a reader of the target sees now.
    :param digest_equal: all files have the digests of the source's.
    """

    name: str
    kind: str
    source_rows: int | None
    target_rows: int | None
    files: int
    size_bytes: int
    digest_equal: bool


@dataclass(frozen=True, kw_only=True)
class VerificationReport:
    """Result of a verification."""

    database: str
    event_id: int
    tables: Sequence[TableReport]
    differences: Sequence[Difference] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        return {
            "database": self.database,
            "event_id": self.event_id,
            "tables": [asdict(table) for table in self.tables],
            "differences": [str(difference) for difference in self.differences],
        }

    def raise_if_different(self) -> None:
        """Raise with every difference named.

        :raises VerificationError: there is one.
        """
        if self.differences:
            lines = "\n  ".join(map(str, self.differences))
            raise VerificationError(
                f"Replica {self.database} differs from its source in {len(self.differences)} "
                f"place(s):\n  {lines}",
                remedy="If somebody wrote to the target, undo it, or drop the target and bootstrap it anew.",
                differences=[str(difference) for difference in self.differences],
            )


def verify_bootstrap(
    pool: MetastorePool,
    policy: ReplicationPolicy,
    dump: str,
    *,
    run_verify: VerifyRunner,
    progress: Callable[[str], None] = logger.info,
) -> VerificationReport:
    """Compare a loaded dump with the target.

    :param pool: connections to the target.
    :param dump: URI of the dump.
    :param run_verify: reads files by Spark: digests of the target's, rows of both sides.
    :raises DumpCorruptError: the dump is not as it was written.
    """
    directory = DumpDirectory(dump, policy.storage_options)
    verification = _Verification(pool, policy, directory, progress)
    with pool.client() as client:
        differences = metadata_differences(client, find_layout(client, policy), directory)
    if not differences:
        verification.read_files(run_verify)
        differences += verification.file_differences()
        differences += verification.row_differences()
    report = VerificationReport(
        database=policy.target_database,
        event_id=verification.event_id,
        tables=list(verification.reports(differences)),
        differences=differences,
    )
    directory.write_json("_verified.json", report.to_json())
    progress(
        f"{policy.target_database}: {len(report.tables)} tables compared, {len(differences)} differences"
    )
    return report


class _Verification:
    def __init__(
        self,
        pool: MetastorePool,
        policy: ReplicationPolicy,
        directory: DumpDirectory,
        progress: Callable[[str], None],
    ) -> None:
        self._pool = pool
        self._policy = policy
        self._database = policy.target_database
        self._directory = directory
        manifest = directory.manifest()
        self.event_id = int(manifest["event_id"])
        self._tables = list(manifest["tables"])
        self._progress = progress
        self._layout = TargetLayout(policy=policy, managed="")
        self._contents: dict[str, _Contents] = {}
        self._rows: dict[tuple[str, str], int | None] = {}
        self._digests: dict[str, str] = {}

    # -- files -----------------------------------------------------------------------------------------

    def read_files(self, run_verify: VerifyRunner) -> None:
        """Let Spark take digests of the target's files and count the rows of both sides."""
        with self._pool.client() as client:
            transactions = valid_transactions(client.get_open_txns())
            self._layout = find_layout(client, self._policy)
            for facts in self._tables:
                if TableKind(facts["kind"]).has_files:
                    self._contents[facts["name"]] = self._table_contents(client, facts["name"], transactions)
        # A directory for each run: a digest of yesterday verifies nothing today.
        run = f"verify/{time.time_ns()}"
        self._directory.write_lines(
            f"{run}/tables.jsonl", (line for contents in self._contents.values() for line in contents.plan())
        )
        options = self._policy.storage_options
        files = (file for contents in self._contents.values() for file in contents.target)
        write_records(
            f"{self._directory.uri}/{run}/files.jsonl",
            (FileToDigest(uri=file.uri, size_bytes=file.size_bytes) for file in files),
            options=options,
        )
        run_verify(f"{self._directory.uri}/{run}", f"{self._directory.uri}/{run}")
        for result in self._directory.read_report(f"{run}/rows.jsonl"):
            self._rows[result["table"], result["side"]] = result["rows"]
        for record in read_record_parts(f"{self._directory.uri}/{run}/digests", FileDigest, options=options):
            self._digests[canonical(record.uri)] = record.digest

    def _table_contents(self, client: MetastoreClient, name: str, transactions: ValidTxns) -> _Contents:
        document = self._directory.read_json(table_file("tables", name, ".json"))
        source = list(dumped_files(self._directory, name))
        table = client.get_table(self._database, name)
        partitions = list(client.iter_partitions(self._database, name)) if table.partitionKeys else []
        write_ids = readable_write_ids(client, [table], transactions).get(name)
        return _Contents(
            document=document,
            table=table,
            source=source,
            target=list(
                visible_files(
                    table, partitions, write_ids, transactions, options=self._policy.storage_options
                )
            ),
            target_write_ids=write_ids.text() if write_ids else None,
        )

    def file_differences(self) -> Iterator[Difference]:
        """Compare the files readers of both sides open, where the target has not compacted by itself."""
        recorded = read_outcomes(f"{self._directory.uri}/load/outcomes", options=self._policy.storage_options)
        digests = {canonical(target): outcome.digest for target, outcome in recorded.items()}
        for name, contents in self._contents.items():
            compacted = contents.compacted_partitions()
            expected = {
                canonical(self._layout.file(contents.document, file))
                for file in contents.source
                if file.partition not in compacted
            }
            found = {canonical(file.uri) for file in contents.target if file.partition not in compacted}
            for uri in sorted(expected | found):
                wanted = digests.get(uri, "not copied") if uri in expected else "no file"
                seen = self._digests.get(uri, "unread") if uri in found else "no file"
                if wanted != seen:
                    yield Difference(table=name, where=uri, what="file", expected=wanted, found=seen)

    # -- rows ------------------------------------------------------------------------------------------

    def reports(self, differences: Sequence[Difference]) -> Iterator[TableReport]:
        """One report a table."""
        differing = {difference.table for difference in differences if difference.what == "file"}
        for facts in self._tables:
            name = facts["name"]
            yield TableReport(
                name=name,
                kind=facts["kind"],
                source_rows=self._rows.get((name, "source")),
                target_rows=self._rows.get((name, "target")),
                files=facts["files"],
                size_bytes=facts["size_bytes"],
                digest_equal=name not in differing,
            )

    def row_differences(self) -> Iterator[Difference]:
        """Tables of which the two sides show different numbers of rows."""
        for name in self._contents:
            source, found = self._rows.get((name, "source")), self._rows.get((name, "target"))
            if source != found:
                yield Difference(table=name, what="rows", expected=str(source), found=str(found))


@dataclass(frozen=True, kw_only=True)
class _Contents:
    """A table's files on both sides."""

    document: Mapping[str, Any]
    table: Any
    source: Sequence[VisibleFile]
    target: Sequence[VisibleFile]
    target_write_ids: str | None

    def compacted_partitions(self) -> set[str]:
        """Partitions that the target has compacted: its files are its own, only rows can be compared."""
        return {file.partition for file in self.target if file.path != file.target_path}

    def plan(self) -> Iterator[dict[str, Any]]:
        """Lines of the Spark job's plan."""
        yield self._line("source", self.document["table"], self.source, self.document["write_ids"])
        yield self._line("target", to_json(self.table), self.target, self.target_write_ids)

    def _line(
        self, side: str, table: Any, files: Sequence[VisibleFile], write_ids: str | None
    ) -> dict[str, Any]:
        directories: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        for file in files:
            directories[file.directory].append((file.path, file.size_bytes))
            if file.side_file:
                directories[file.directory].append((file.side_file, 0))
        return {
            "side": side,
            "kind": self.document["kind"],
            "table": table,
            "write_ids": write_ids,
            "directories": list(directories.items()),
        }

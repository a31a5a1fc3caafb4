"""Finds results of the target's own compactor in the directories of tables and partitions that were dropped.

A metastore drops a partition while a worker compacts it, and forgets the request with it
(``AcidEventListener``). The worker makes the partition's directory anew, and its result stays there. The rows
in it are those that loads of the policy have placed: a compactor gives rows no other write ids.

The name of a directory alone proves nothing, because anybody may have copied it there. So a result counts
only if the records of published loads list rows that it replaces.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from airflow_hive_federation.acid.names import (
    DirectoryKind,
    DirectoryName,
    is_acid_directory,
    parse_directory,
)
from airflow_hive_federation.errors import AcidFormatError, CompactionRunningError
from airflow_hive_federation.replication.format.directory import FINISHED_LOAD, DumpDirectory
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.format.unfinished import begun_loads
from airflow_hive_federation.replication.metadata.write_ids import valid_transactions
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.storage.filesystem import canonical

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


class LeftCompactions:
    """The results of the target's compactor that no metadata names any more.

    :param client: client of the target.
    :param directory: the dump that is about to be loaded.
    :param layout: maps its tables to the target.
    """

    def __init__(self, client: MetastoreClient, directory: DumpDirectory, layout: TargetLayout) -> None:
        self._client = client
        self._directory = directory
        self._layout = layout
        self._policy = layout.policy

    def among(self, document: TableDocument, directories: Iterable[str]) -> frozenset[str]:
        """Return those of some directories that the target's compactor has made of this replica's own rows.

        :param directories: canonical URIs of bases and deltas of a transactional table, where the target's
            metastore has neither the table nor the partition.
        :raises CompactionRunningError: a compaction still works in one of them.
        """
        results = {uri: name for uri in directories if (name := _result_name(uri)) is not None}
        if not results:
            return frozenset()
        of_own_rows = self._of_own_rows(document, results)
        if not of_own_rows:
            return frozenset()
        transactions = valid_transactions(self._client.get_open_txns())
        for uri in sorted(of_own_rows):
            # The metastore has forgotten the request with the partition, but not the worker's transaction.
            txn = results[uri].visibility_txn_id
            if transactions.has_open(txn, txn):
                raise self._running(document, uri, txn)
        return frozenset(
            uri
            for uri in of_own_rows
            # A higher one is of another metastore.
            if results[uri].visibility_txn_id <= transactions.high_watermark
        )

    # -- inside ----------------------------------------------------------------------------------------

    def _of_own_rows(self, document: TableDocument, results: Mapping[str, DirectoryName]) -> set[str]:
        reached, placed = self._placed(document.name, {_home(uri) for uri in results})
        return {
            uri
            for uri, result in results.items()
            if result.max_write_id <= reached
            and any(_replaces(result, name) for name in placed.get(_home(uri), ()))
        }

    def _placed(self, table: str, homes: Collection[str]) -> tuple[int, Mapping[str, Collection[str]]]:
        """Return the highest write id of a table that loads have reached, and the rows that they placed.

        :param homes: canonical URIs of directories of the table or its partitions.
        :return: the write id, and for each of the directories the names of bases, deltas and original files.
        """
        reached, placed = 0, defaultdict(set)
        for dump in self._loaded():
            for entry in dump.manifest().tables:
                if entry.name != table or not entry.kind.transactional:
                    continue
                reached = max(reached, entry.reached)
                if not entry.is_changed:
                    continue
                document = dump.table(table)
                for file in dump.files(table, only=entry.described):
                    home = canonical(self._layout.directory(document, file.directory, file.partition))
                    if home in homes:
                        placed[home].add(file.target_path.partition("/")[0])
        return reached, placed

    def _loaded(self) -> Iterator[DumpDirectory]:
        """Yield the dumps from which the target was loaded, as far as they are still there."""
        last = canonical(str(self._directory.manifest().previous))
        for dump in begun_loads(self._policy):
            # A load that was killed right after it was published has left no acknowledgement.
            if canonical(dump.uri) == last or (
                dump.exists(FINISHED_LOAD) and dump.loaded_into == self._policy.target_database
            ):
                yield dump

    def _running(self, document: TableDocument, uri: str, txn: int) -> CompactionRunningError:
        root = canonical(self._layout.directory(document, document.location, ""))
        partition = _home(uri).removeprefix(root).lstrip("/")
        table = f"{self._policy.target_database}.{document.name}"
        where = f"partition {partition} of {table}" if partition else table
        return CompactionRunningError(
            f"A compaction on the target still works on {uri}: its transaction {txn} is open, and {where} "
            "was dropped meanwhile. The load would create it anew, and readers would see the result's rows.",
            remedy="Repeat the cycle once the transaction has ended (SHOW TRANSACTIONS on the target). The "
            "metastore aborts that of a dead worker.",
            table=table,
            partition=partition,
        )


def _result_name(uri: str) -> DirectoryName | None:
    """Return the parsed name of a directory that a compactor has made; ``None`` for others."""
    try:
        name = parse_directory(uri.rpartition("/")[2])
    except AcidFormatError:
        return None
    return name if name.visibility_txn_id else None


def _home(uri: str) -> str:
    return uri.rpartition("/")[0]


def _replaces(result: DirectoryName, name: str) -> bool:
    """Return whether a result of a compaction has the rows of a directory or an original file. Pure."""
    if not is_acid_directory(name):
        return result.kind is DirectoryKind.BASE
    placed = parse_directory(name)
    if result.kind is DirectoryKind.BASE:
        return placed.max_write_id <= result.max_write_id
    return (
        placed.kind is not DirectoryKind.BASE
        and result.min_write_id <= placed.min_write_id
        and placed.max_write_id <= result.max_write_id
    )

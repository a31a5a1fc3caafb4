"""Moves the hidden directories of a load to the places that readers see.

In an object store a move copies file by file, while a lock keeps readers out (:mod:`.kept_out`). Everywhere,
compactions of the target are kept away: one that has listed a partition before a result of the source's
compaction came there would end in a directory that overlaps with it, and readers would see rows twice
(:mod:`.own_compactions`). Hive's worker does not read such a result either while the transactions in it are
open, so that it is kept away until these have ended.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from airflow_hive_federation.errors import CompactionRunningError, FileVanishedError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidTxns
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.load.copying import SourceDirectories, TableCopy, partition_names
from airflow_hive_federation.replication.load.kept_out import ReadersKeptOut
from airflow_hive_federation.replication.load.own_compactions import OwnCompactions, directories_of
from airflow_hive_federation.replication.metadata.write_ids import valid_transactions
from airflow_hive_federation.replication.replica.layout import STAGE, TargetLayout
from airflow_hive_federation.storage.empty_directories import remove_empty_directory
from airflow_hive_federation.storage.filesystem import (
    OBJECT_STORES,
    join,
    open_filesystem,
    parse_location,
    storage_errors,
)
from airflow_hive_federation.storage.listing import is_there, list_files, list_many
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.publishing import rename
from airflow_hive_federation.transactions.heartbeat import transaction_timeout_s
from airflow_hive_federation.waiting import PollPolicy, wait_until

logger = logging.getLogger(__name__)

#: The metastore's name of the state of a request that a worker serves (``TxnStore.WORKING_RESPONSE``).
_WORKING = "working"
#: A worker has no transaction for a moment. Those of Hive 3.1 never have one, and may work for hours.
_PATIENCE = PollPolicy(first_s=0.2, longest_s=5.0, timeout_s=60.0)


@dataclass(frozen=True, kw_only=True)
class _ContestedTable:
    """A table in which compactions of the target could make rows visible twice.

    :param name: name of the table.
    :param complete: write id up to which the target has every write id, with none open.
    :param directories: see :class:`.copying.TableCopy`.
    :param partitions: names of partitions by the canonical URIs of their directories; empty for the table
        itself.
    """

    name: str
    complete: int
    directories: Mapping[str, SourceDirectories]
    partitions: Mapping[str, str]


class Placing:
    """Places the hidden directories of a load, and keeps compactions of the target away from them.

    A compaction that runs in their partitions loses its transaction, so that nobody ever reads its result.
    The load itself requests the next one.

    :param client: client of the target.
    :param directory: the dump.
    :param layout: maps its tables to the target.
    :param check: runs before each directory, and raises if the cycle must end.
    """

    def __init__(
        self,
        client: MetastoreClient,
        directory: DumpDirectory,
        layout: TargetLayout,
        *,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._directory = directory
        self._layout = layout
        self._database = layout.policy.target_database
        self._options = layout.policy.storage_options
        self._check = check
        self._readers = ReadersKeptOut(client, layout.policy, check=check)
        self._tables: dict[str, _ContestedTable] = {}

    def note(
        self, document: TableDocument, copy: TableCopy, complete: int, only: Collection[str] | None
    ) -> None:
        """Keep compactions away from the contested partitions of one more table.

        :param complete: write id up to which the target has every write id, with none open.
        :param only: names of the partitions that the load works on; ``None`` for the whole table.
        """
        if copy.contested:
            self._tables[document.name] = _ContestedTable(
                name=document.name,
                complete=complete,
                directories=copy.contested,
                partitions=partition_names(self._directory, self._layout, document, only),
            )

    def transactions(self) -> ValidTxns:
        """Return the target's transactions, as they are now."""
        return valid_transactions(self._client.get_open_txns())

    def place(self, table: str, copy: TableCopy) -> None:
        """Move the hidden directories of a table to their places.

        :raises CompactionRunningError: a compaction of the target has ended since the copy was planned, and
            has their rows; or a worker without a transaction works there.
        :raises TargetChangedError: the target has a part of their rows in results of its own compactions.
        :raises LockTimeoutError: readers of a table in an object store do not end.
        """
        # A worker's lock would keep this load waiting like that of a reader.
        self._refuse_results(table)
        readers_out = self._readers.of(table) if appears_by_files(copy) else nullcontext(lambda: None)
        with readers_out as check_lock:
            place_staged(copy, self._options, check=self._check, check_lock=check_lock)
            # Readers stay out of a table that would show them rows twice.
            self.refuse_overlaps(table)

    def let_readers_in(self) -> None:
        """Let readers in where loads that were killed have kept them out; see :mod:`.kept_out`."""
        self._readers.let_in()

    def refuse_overlaps(self, *tables: str) -> None:
        """Refuse to go on if a compaction of the target has ended beside directories that are placed.

        :param tables: names of tables; all by default.
        :raises TargetChangedError: readers see rows twice, or would.
        :raises CompactionRunningError: a worker without a transaction works there.
        """
        contested = [table for name, table in self._tables.items() if not tables or name in tables]
        if contested:
            self._interrupt(contested)
        for table in contested:
            own = self._own_compactions(table)
            for home, of_source in table.directories.items():
                own.refuse_beside(home, of_source.placed, of_source.names)

    def _refuse_results(self, table: str) -> None:
        if table not in self._tables:
            return
        contested = self._tables[table]
        self._interrupt([contested])
        own = self._own_compactions(contested)
        for home, of_source in contested.directories.items():
            for name in sorted(of_source.placed):
                if own.has_rows(home, name, of_source.names):
                    raise _running(
                        f"{self._database}.{table}",
                        contested.partitions.get(home, ""),
                        f"has just ended, and has the rows of {name}",
                    )

    def _interrupt(self, tables: Iterable[_ContestedTable]) -> None:
        """Abort the compactions that run in the partitions."""
        wanted = {
            (table.name, table.partitions.get(home, "")) for table in tables for home in table.directories
        }
        left: list[types.ShowCompactResponseElement] = []

        def is_done() -> bool:
            running = self._running(wanted)
            self._abort([entry.txnId for entry in running if entry.txnId])
            left[:] = [entry for entry in running if not entry.txnId and not self._is_dead(entry)]
            return not left

        if not wait_until(is_done, _PATIENCE):
            raise _running(
                f"{self._database}.{left[0].tablename}",
                left[0].partitionname or "",
                f"by worker {left[0].workerid} has no transaction that could be aborted",
            )

    def _running(self, wanted: Collection[tuple[str, str]]) -> list[types.ShowCompactResponseElement]:
        """Return the compactions that run in partitions.

        :param wanted: pairs of table and partition.
        """
        answer = self._client.call("show_compact", types.ShowCompactRequest(dbName=self._database))
        return [
            entry
            for entry in answer.compacts or ()
            if entry.state == _WORKING
            and entry.dbname == self._database
            and (str(entry.tablename), entry.partitionname or "") in wanted
        ]

    def _abort(self, txns: Sequence[int]) -> None:
        if txns:
            logger.info(
                "The load aborts compactions of %s, whose results would overlap with the source's: "
                "transactions %s",
                self._database,
                ", ".join(map(str, txns)),
            )
            self._client.abort_txns(txns)

    def _is_dead(self, entry: types.ShowCompactResponseElement) -> bool:
        """Return whether a worker has died before it named its transaction, which has timed out by now.

        Workers of Hive 3.1 have none (``None``, not 0). The clocks of this machine and of the metastore's
        database are taken for equal.
        """
        age_s = time.time() - (entry.start or 0) / 1000
        return entry.txnId is not None and age_s > 2 * transaction_timeout_s(self._client)

    def _own_compactions(self, table: _ContestedTable) -> OwnCompactions:
        listings = list_many(table.directories, options=self._options, missing_ok=True)
        files = [join(home, entry.path) for home, entries in listings.items() for entry in entries]
        return OwnCompactions(
            table.name,
            directories_of(files),
            table.complete,
            self.transactions,
        )


def _running(table: str, partition: str, text: str) -> CompactionRunningError:
    where = f"partition {partition} of {table}" if partition else table
    return CompactionRunningError(
        f"A compaction of {where} on the target {text}: the load would place a result of the source's"
        " compaction beside it.",
        remedy="Repeat the cycle once it has ended (SHOW COMPACTIONS). The metastore gives up a dead worker "
        "after hive.compactor.worker.timeout.",
        table=table,
        partition=partition,
    )


def appears_by_files(copy: TableCopy) -> bool:
    """Return whether the store moves the hidden directories of a table file by file.

    Readers would take half of a base for the whole.
    """
    stores = {parse_location(home).scheme for home in copy.staged.values()}
    return not stores.isdisjoint(OBJECT_STORES)


def place_staged(
    copy: TableCopy,
    options: StorageOptions | None = None,
    *,
    check: Callable[[], None] = lambda: None,
    check_lock: Callable[[], None] = lambda: None,
) -> None:
    """Move hidden directories, one after the other, to the places that readers see.

    :param check: runs before each directory, and before each object of one in an object store, and raises if
        the cycle must end.
    :param check_lock: runs before each directory, and raises if readers are not kept out any more. (A
        directory that has been begun is better finished.)
    :raises FileVanishedError: a file that was copied is in neither place.
    """
    copied = _hidden_files(copy)
    for staged, home in copy.staged.items():
        check()
        _refuse_incomplete(staged, home, copied[staged], options)
        # A missing directory was moved by a run that was killed afterwards.
        if is_there(staged, options=options):
            check_lock()
            filesystem, path = open_filesystem(staged, options)
            _, target = open_filesystem(home, options)
            with storage_errors(home):
                rename(filesystem, path, target, check=check)
    # A partition may have several hidden directories, so their parent is removed only after all have been
    # moved. If this process was suspended, its successor may be copying into that parent by now.
    for stage in sorted({staged.rpartition("/")[0] for staged in copy.staged}):
        check()
        remove_empty_directory(stage, options)


def _hidden_files(copy: TableCopy) -> Mapping[str, set[str]]:
    """Return the paths of copied files inside their hidden directories, by the URIs of these."""
    files: defaultdict[str, set[str]] = defaultdict(set)
    for item in copy.items:
        place, hidden, path = item.target.partition(f"/{STAGE}/")
        name, _, inner = path.partition("/")
        if hidden:
            files[f"{place}/{STAGE}/{name}"].add(inner)
    return files


def _refuse_incomplete(staged: str, home: str, wanted: set[str], options: StorageOptions | None) -> None:
    missing = set(wanted)
    for place in (staged, home):
        if missing:
            entries = list_files(place, options=options, missing_ok=True)
            missing.difference_update(entry.path for entry in entries)
    if missing:
        name = min(missing)
        raise FileVanishedError(
            f"{len(missing)} of the {len(wanted)} files that the load has copied to {staged} are gone, "
            f"for instance {name}.",
            remedy="Load again: the load copies them again.",
            path=f"{staged}/{name}",
        )

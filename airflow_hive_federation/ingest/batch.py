"""Opens a batch of transactions that write to the same files: one file per bucket of each partition.

In stores that cannot append to a file, each transaction has files, and a directory, of its own. A partition
may lie in such a store although its table does not.

A process may be killed at any line. Each step leaves this behind:

===================  ==================================================  ===============================
step                 done                                                left behind
===================  ==================================================  ===============================
open                 transactions                                        aborted by their timeout
begin                a lock; the first one also allocates the write ids  the same
flush                partitions and their registration; then stripes     bytes behind the flushed length
commit               tails; flushed lengths; then the commit             rows of a write id that is aborted
close                the rest aborted; side files removed                side files, which readers obey
===================  ==================================================  ===============================

If a disk fails, a file may end with bytes that are neither on the disk nor cut off; its side file stays, too.

Threads write the files. An exception of a signal (Airflow's timeout) may come while the main thread waits for
them. Whoever cuts off or closes a file therefore ends their work first.

**A batch holds no lock between two transactions**, but its write ids and files serve the later ones, too.
Meanwhile a statement of a higher write id may overwrite the table: its base would hide the later rows. Or it
may remove the files. A later transaction therefore looks for both while it holds its lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from airflow_hive_federation.acid.names import DirectoryKind, DirectoryName
from airflow_hive_federation.errors import (
    MetastoreError,
    OutcomeUnknownError,
    StorageError,
    TransactionAbortedError,
)
from airflow_hive_federation.ingest.delta_files import DeltaFile, acid_types, encoded
from airflow_hive_federation.ingest.errors import (
    CommitOutcomeUnknown,
    HeartBeatFailure,
    StreamingIOFailure,
    TransactionError,
    io_errors,
    metastore_errors,
)
from airflow_hive_federation.ingest.grouping import Group, Values, grouped
from airflow_hive_federation.ingest.notifications import note_files
from airflow_hive_federation.ingest.partitions import Partitions
from airflow_hive_federation.ingest.rounds import Round
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.tables.write.plan import TableLayout, partition_names
from airflow_hive_federation.transactions.batch_heartbeat import Heartbeats
from airflow_hive_federation.transactions.commits import commit_patiently
from airflow_hive_federation.transactions.locks import (
    TableWrite,
    WriteKind,
    granted,
    lock_components,
    unnoted,
)
from airflow_hive_federation.transactions.transaction import LOCK_POLICY
from airflow_hive_federation.waiting import PollPolicy, boot_time_s


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """The settings that all batches of a connection share.

    :param static: values of the one partition; ``()`` for a table without partitions, ``None`` if the records
        name their partition.
    :param size: transactions per batch; a metastore may open fewer (``hive.txn.max.open.batch``).
    :param fence: another lock that every transaction takes.
    :param buffer_bytes: buffered rows of more bytes than this are written to the files before the commit.
    :param at: receives the name of each step that was taken.
    :param on_lost: receives the ids of transactions that the metastore has aborted.
    """

    layout: TableLayout
    static: Values | None
    size: int
    agent_info: str
    optimized: bool
    compression: str
    buffer_bytes: int
    heartbeat_interval_s: float
    fence: types.LockComponent | None = None
    storage_options: StorageOptions | None = field(default=None, repr=False)
    lock_policy: PollPolicy = LOCK_POLICY
    at: Callable[[str], None] = lambda _step: None
    on_lost: Callable[[Collection[int]], None] = lambda _txn_ids: None


class TransactionBatch:
    """Transactions that are opened together and used one after the other.

    The first one to begin allocates the write ids of all, once it has its lock. As in
    :meth:`.Transaction.lock`, they would otherwise be below the base of an overwrite that held the lock.

    :raises TransactionError: the metastore does not open the transactions.
    """

    def __init__(self, client: MetastoreClient, settings: BatchSettings, partitions: Partitions) -> None:
        self._client, self._settings, self._partitions = client, settings, partitions
        layout = settings.layout
        since_s = boot_time_s()
        with metastore_errors(TransactionError, f"A transaction batch on {layout.name}"):
            self.txn_ids = client.open_txns(settings.size, agent_info=settings.agent_info)
        settings.at("opened")
        self.write_ids: list[int] = []
        self._place = -1
        self._has_later_writes = self._is_outdated = False
        self._types = acid_types(layout)
        self._files: dict[tuple[Values, int], DeltaFile] = {}
        self._touched: dict[tuple[Values, int], DeltaFile] = {}
        self._rows: list[pa.RecordBatch] = []
        self._rows_bytes = 0
        self._is_torn = False
        self.auto_flushes = 0
        self._pool = ThreadPoolExecutor(min(os.cpu_count() or 1, 8), thread_name_prefix="hive-ingest-encode")
        self._round = Round(self._pool)
        self._hearts = Heartbeats(
            client,
            self.txn_ids,
            settings.heartbeat_interval_s,
            since_s=since_s,
            on_lost=settings.on_lost,
        )

    @property
    def remaining(self) -> int:
        """Return the number of transactions that were not begun yet."""
        return len(self.txn_ids) - self._place - 1

    @property
    def txn_id(self) -> int:
        """Return the id of the present transaction."""
        return self.txn_ids[self._place]

    @property
    def write_id(self) -> int:
        """Return the write id of the present transaction."""
        return self.write_ids[self._place]

    def begin(self) -> None:
        """Begin the next transaction, take its lock, and look for what happened since the last one.

        :raises TransactionError: the lock is not granted, or the table is another one than at the connect.
        """
        self._place += 1
        self._is_torn = False
        self.check()
        self._partitions.begin()
        self._touched.clear()
        self._forget_rows()
        self._end_whole_files()
        for file in self._files.values():
            file.begin()
        with metastore_errors(TransactionError, f"Lock on {self._settings.layout.name}", txn_id=self.txn_id):
            self._lock()
            self._refuse_made_anew(self._partitions.look_again())
            if not self.write_ids:
                self._allocate()
            self._has_later_writes = self._place > 0 and self._is_written_by_others()
        with io_errors(f"Files of {self._settings.layout.name}"):
            self._is_outdated = self._has_changed_files()

    @property
    def is_outdated(self) -> bool:
        """Return whether the batch can write no more rows that readers would see; another one can.

        Somebody has overwritten a partition or removed a file, or the first transaction had no write id.
        """
        return self._is_outdated or (self._place >= 0 and not self.write_ids)

    def check(self) -> None:
        """Check that the transaction is alive and whole.

        :raises HeartBeatFailure: the metastore has aborted the transaction or forgotten it.
        :raises StreamingIOFailure: some rows of the transaction were not written to its files.
        """
        if self._is_torn:
            raise StreamingIOFailure(
                f"Rows of transaction {self.txn_id} are missing from its files: writing them has failed.",
                remedy="Close the connection, connect again, and send the transaction's records again.",
                txn_id=self.txn_id,
            )
        if self.txn_id in self._hearts.lost:
            loss = self._hearts.loss
            reason = (
                loss.description
                if loss
                else "no heartbeat came for longer than hive.txn.timeout, or another client aborted it"
            )
            raise HeartBeatFailure(
                f"Transaction {self.txn_id} is lost: {reason}.",
                remedy="Close the connection, connect again, and send the transaction's records again.",
                txn_id=self.txn_id,
            ) from (loss.cause if loss else None)

    def insert(self, rows: pa.RecordBatch) -> None:
        """Add rows, which readers see after the commit.

        :raises StreamingIOFailure: the rows cannot be written.
        """
        if not rows.num_rows:
            return
        self._rows.append(rows)
        self._rows_bytes += rows.nbytes
        if self._rows_bytes > self._settings.buffer_bytes:
            self.flush()
            self.auto_flushes += 1

    def flush(self) -> None:
        """Write the buffered rows to the files.

        :raises StreamingIOFailure: the rows cannot be written.
        """
        if not self._rows:
            return
        layout, static = self._settings.layout, self._settings.static
        writers = self._next_round()
        try:
            divided = writers.submit(self._divide, self._rows, writers)
            # Meanwhile the pool groups the rows and encodes the first stripes.
            values = {static} if static is not None else divided.result()[0]
            self._partitions.prepare(values, txn_id=self.txn_id, write_id=self.write_id, check=self.check)
            self._refuse_overwritten(values)
            self._settings.at("prepared")
            tasks = divided.result()[1]
        except BaseException:
            # The rows are kept, because the caller may repeat the commit if no metastore answers.
            writers.end()
            raise
        self._is_torn = True
        self._forget_rows()
        writers.allow()
        with io_errors(f"Rows of {layout.name}"):
            _all_done(tasks)
        self._is_torn = False

    def _divide(
        self, batches: Sequence[pa.RecordBatch], writers: Round
    ) -> tuple[set[Values], list[Future[None]]]:
        """Start one task per file that writes its rows; return the partitions' values and the tasks."""
        layout, static = self._settings.layout, self._settings.static
        work: dict[tuple[Values, int], list[Group]] = {}
        for rows in pa.Table.from_batches(batches).combine_chunks().to_batches():
            for group in grouped(layout, rows, static):
                work.setdefault((group.values, group.bucket), []).append(group)
        tasks = [writers.submit(self._write, groups, writers) for groups in work.values()]
        return {values for values, _bucket in work}, tasks

    def commit(self, partitions: Sequence[Values], key_value: types.CommitTxnKeyValue | None) -> None:
        """Make the transaction's rows visible; the caller may repeat the call if no metastore answers.

        :param partitions: partitions that are created even if no row was written to them.
        :raises HeartBeatFailure: the metastore has aborted the transaction or forgotten it.
        :raises TransactionError: the metastore refuses to commit it.
        :raises StreamingIOFailure: the files cannot be written.
        """
        self.check()
        self.flush()
        self._partitions.prepare(partitions, txn_id=self.txn_id, write_id=self.write_id, check=self.check)
        self._settings.at("flushed")
        # Encoding and writing may have taken longer than the metastore waits for heartbeats.
        self.check()
        writers = self._next_round()
        with io_errors(f"Files of {self._settings.layout.name}"):
            _all_done([writers.submit(file.flush) for file in self._touched.values()])
        self._settings.at("published")
        with self._hearts.ending:
            self._commit(key_value)
            self._hearts.ended(self.txn_id)
        self._settings.at("committed")

    def abort(self) -> None:
        """Drop the present transaction's rows.

        :raises TransactionError: the metastore cannot be reached; it aborts the transaction itself when the
            heartbeats are missing.
        """
        self._round.end()
        self._forget_rows()
        with self._hearts.ending:
            self._hearts.ended(self.txn_id)
        with io_errors(f"Files of {self._settings.layout.name}"):
            for file in self._touched.values():
                file.rewind()
        self._settings.at("rewound")
        with metastore_errors(TransactionError, f"Transaction {self.txn_id}", txn_id=self.txn_id):
            self._client.abort_txns([self.txn_id])

    def close(self, *, open_too: bool) -> None:
        """Abort the remaining transactions and finish the files.

        Every step is tried; then the first error is raised. If a signal ends the wait for the threads that
        write, the files stay as they are, as after a kill.

        :param open_too: the present transaction is open.
        """
        errors: list[Exception] = []
        self._hearts.stop()
        self._round.end()
        self._pool.shutdown()
        open_ids = self.txn_ids[self._place if open_too else self._place + 1 :]
        self._forget_rows()
        for file in self._files.values():
            for step in [file.rewind, file.close] if open_too else [file.close]:
                try:
                    step()
                except StorageError as error:
                    errors.append(error)
        self._settings.at("finished")
        try:
            # One whose begin was interrupted is not the present one for the connection.
            if remaining := sorted({*open_ids, *self._hearts.unended}):
                self._client.abort_txns(remaining)
        except MetastoreError as error:
            errors.append(error)
        if errors:
            raise errors[0]

    def _next_round(self) -> Round:
        """Begin tasks that write to the files; those of an interrupted round have ended before."""
        self._round.end()
        self._round = Round(self._pool)
        return self._round

    def _end_whole_files(self) -> None:
        """Finish the files in stores that cannot append, so that each transaction begins others."""
        with io_errors(f"Files of {self._settings.layout.name}"):
            for key in [key for key, file in self._files.items() if local_path(file.uri) is None]:
                self._files[key].close()
                del self._files[key]

    def _lock(self) -> None:
        noted = lock_components([self._table_write()])
        fences = [] if self._settings.fence is None else [self._settings.fence]
        components = [*(noted if self.write_ids else unnoted(noted)), *fences]
        answer = self._client.lock(components, txn_id=self.txn_id, agent_info=self._settings.agent_info)
        self._settings.at("locked")
        if not granted(self._client, answer, self._settings.lock_policy, txn_id=self.txn_id):
            raise TransactionError(
                f"Transaction {self.txn_id} was not granted its lock on {self._settings.layout.name} in "
                f"{self._settings.lock_policy.timeout_s} s.",
                remedy="Find the holder with SHOW LOCKS.",
                txn_id=self.txn_id,
            )

    def _allocate(self) -> None:
        layout = self._settings.layout
        allocated = self._client.allocate_table_write_ids(layout.database, layout.table, self.txn_ids)
        self.write_ids = [allocated[txn_id] for txn_id in self.txn_ids]
        self._settings.at("allocated")
        self._client.lock(
            lock_components([self._table_write()]),
            txn_id=self.txn_id,
            agent_info=self._settings.agent_info,
        )

    def _table_write(self) -> TableWrite:
        layout, static = self._settings.layout, self._settings.static
        return TableWrite(
            database=layout.database,
            table=layout.table,
            kind=WriteKind.INSERT,
            partition=partition_names(layout, [static])[0] if static else None,
            dynamic=static is None,
        )

    def _refuse_made_anew(self, is_made_anew: bool) -> None:
        if is_made_anew:
            raise TransactionError(
                f"{self._settings.layout.name} was dropped and created again since the connection was made.",
                remedy="Close the connection, connect again, and send the transaction's records again.",
                txn_id=self.txn_id,
            )

    def _is_written_by_others(self) -> bool:
        """Return whether somebody has allocated a write id after those of the batch."""
        highest = self._partitions.highest_write_id()
        # Before Hive 4, tables have no ids that show it.
        self._refuse_made_anew(highest < self.write_id)
        return highest > self.write_ids[-1]

    def _has_changed_files(self) -> bool:
        """Return whether a file of earlier transactions was removed, or lies beside a base that hides it."""
        if not all(file.is_whole for file in self._files.values()):
            return True
        static = self._settings.static
        values = {key for key, _bucket in self._files} | (set() if static is None else {static})
        return self._has_later_writes and self._is_overwritten(values)

    def _is_overwritten(self, values: Collection[Values]) -> bool:
        options = self._settings.storage_options
        return any(self._partitions.has_base(key, self.write_id, options) for key in values)

    def _refuse_overwritten(self, values: Collection[Values]) -> None:
        """Refuse rows of partitions that were overwritten before the batch wrote there."""
        name = self._settings.layout.name
        if self._has_later_writes:
            with io_errors(f"Partitions of {name}"):
                self._is_outdated = self._is_overwritten({*values} - {key for key, _bucket in self._touched})
        if self._is_outdated:
            raise TransactionError(
                f"A partition of {name} was overwritten after the write id of transaction {self.txn_id} was "
                "allocated: its rows would be hidden.",
                remedy="Abort it, begin another transaction, and send its records again.",
                txn_id=self.txn_id,
            )

    def _write(self, groups: Sequence[Group], writers: Round) -> None:
        """Write the rows of one file as soon as its partition is prepared."""
        settings, key = self._settings, (groups[0].values, groups[0].bucket)
        file = self._files.get(key)
        first_row_id = file.next_row_id if file is not None else 0
        for group in groups:
            stripes = encoded(
                group.rows(),
                bucket=group.bucket,
                write_id=self.write_id,
                first_row_id=first_row_id,
                compression=settings.compression,
                optimized=settings.optimized,
                filters=settings.layout.filters,
            )
            first_row_id += group.row_count
            writers.wait_until_allowed()
            self._file(key).append(self.write_id, stripes)

    def _file(self, key: tuple[Values, int]) -> DeltaFile:
        values, bucket = key
        location = self._partitions.location(values)
        if key in self._files and self._files[key].location != location:
            # The table or partition was given another directory since the last transaction.
            self._files.pop(key).close()
        if key not in self._files:
            shared = self.write_ids if local_path(location) is not None else [self.write_id]
            name = DirectoryName(kind=DirectoryKind.DELTA, min_write_id=shared[0], max_write_id=shared[-1])
            self._files[key] = DeltaFile(
                f"{location}/{name}",
                bucket,
                self._types,
                compression=self._settings.compression,
                indexed=not self._settings.optimized,
                side=len(shared) > 1,
                storage_options=self._settings.storage_options,
            )
        return self._touched.setdefault(key, self._files[key])

    def _commit(self, key_value: types.CommitTxnKeyValue | None) -> None:
        try:
            with metastore_errors(
                TransactionError, f"Commit of transaction {self.txn_id}", txn_id=self.txn_id
            ):
                note_files(
                    self._client,
                    self._settings.layout,
                    [(values, file.uri) for (values, _bucket), file in self._touched.items()],
                    txn_id=self.txn_id,
                    write_id=self.write_id,
                )
                self._settings.at("notified")
                self._commit_patiently(key_value)
        except TransactionError as error:
            if isinstance(error.__cause__, TransactionAbortedError):
                raise HeartBeatFailure(
                    error.message, remedy="Connect again and send its records again.", txn_id=self.txn_id
                ) from error
            raise

    def _commit_patiently(self, key_value: types.CommitTxnKeyValue | None) -> None:
        try:
            commit_patiently(lambda: self._client.commit_txn(self.txn_id, key_value=key_value), self.txn_id)
        except OutcomeUnknownError as error:
            raise CommitOutcomeUnknown(
                f"It is unknown whether transaction {self.txn_id} was committed: {error.message}",
                remedy="Connect again and go on from the position that was committed last.",
                txn_id=self.txn_id,
            ) from error

    def _forget_rows(self) -> None:
        self._rows, self._rows_bytes = [], 0


def _all_done(tasks: Sequence[Future[Any]]) -> None:
    """Wait for all tasks and raise the error of one that failed."""
    for task in wait(tasks).done:
        task.result()

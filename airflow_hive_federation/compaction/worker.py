"""Serves the metastore's compaction queue, as Hive's own ``Worker`` does, without a Hive engine.

A compaction is a transaction of its own kind. The metastore hands out a request. The worker opens a
transaction, reports the highest write id that it covers, merges files and commits; from the commit on readers
read the new directories. Then the worker marks the request compacted, and the metastore's cleaner removes the
old directories as soon as no reader needs them. If the worker is killed before the commit, readers see no
change: the transaction times out (``metastore.txn.timeout``), and the remaining files are hidden or belong to
an aborted transaction.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from airflow_hive_federation import __version__
from airflow_hive_federation.acid.markers import chosen
from airflow_hive_federation.compaction.aborted import forgettable, sweep_table
from airflow_hive_federation.compaction.files import (
    placed,
    publish,
    remove_directories,
    remove_leftovers,
    remove_staging,
)
from airflow_hive_federation.compaction.merge import MergeOutcome
from airflow_hive_federation.compaction.plan import (
    BucketMerge,
    CompactedTable,
    CompactionKind,
    CompactionPlan,
    Decision,
    compactor_write_ids,
    plan_compaction,
)
from airflow_hive_federation.compaction.tables import compacted_table, run_as
from airflow_hive_federation.compaction.worker_names import worker_name
from airflow_hive_federation.errors import (
    ConfigurationError,
    HiveFederationError,
    LockTimeoutError,
    NoSuchObjectError,
    OutcomeUnknownError,
    TransactionAbortedError,
)
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.doctor import examine_cleaner
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.transactions.commits import commit_patiently
from airflow_hive_federation.transactions.heartbeat import (
    SILENCE_SHARE,
    Heartbeat,
    Loss,
    transaction_timeout_s,
)
from airflow_hive_federation.transactions.snapshots import Snapshot, take_snapshots
from airflow_hive_federation.waiting import StopRequest

log = logging.getLogger(__name__)

#: Merges bucket files, and returns one result per merge, in order.
MergeRunner = Callable[[Sequence[BucketMerge]], Sequence["MergeOutcome | HiveFederationError"]]

_HEARTBEAT_S = 30.0
#: SHOW COMPACTIONS lists this name for requests without a pool, but the queue does not hand them out under it
#: (``Constants.COMPACTION_DEFAULT_POOL``, ``NextCompactionFunction``).
_DEFAULT_POOL = "default"
_KINDS = {types.CompactionType.MAJOR: CompactionKind.MAJOR, types.CompactionType.MINOR: CompactionKind.MINOR}


@dataclass(frozen=True, kw_only=True)
class CompactionReport:
    """The result of one request.

    :param id: number of the request in the queue.
    :param table: ``database.table``.
    :param partition: the partition's name; empty for a table without partitions.
    :param kind: ``major``, ``minor``, or another kind of Hive's, which is refused here.
    :param state: ``compacted``, ``cleaning`` (no files to merge, only to clean), ``refused`` or
        ``failed``.
    :param message: reason why the request was refused or has failed.
    :param unneeded: true if the request was refused because there is nothing to compact.
    :param retryable: true if the request has failed, and a later one may succeed with nothing changed.
    :param directories: new directories.
    :param rows: number of rows in the new directories.
    :param deleted: number of rows that were left out because they were deleted.
    :param size_bytes: total length of the new files.
    :param seconds: duration.
    """

    id: int
    table: str
    partition: str
    kind: str
    state: str
    message: str = ""
    unneeded: bool = False
    retryable: bool = False
    directories: tuple[str, ...] = ()
    rows: int = 0
    deleted: int = 0
    size_bytes: int = 0
    seconds: float = 0.0


class CompactionWorker:
    """A worker that serves the compaction queue of one metastore.

    :param run_merges: merges bucket files; see :func:`.runners.in_threads` and the Spark job.
    :param pool_name: the worker pool to serve (``ALTER TABLE … COMPACT … POOL 'name'``); ``None`` and
        ``default``, the name in SHOW COMPACTIONS, serve the requests that name no pool.
    :param batch_size: number of requests that are served together, whose bucket files are merged in parallel.
    :param storage_options: options of the stores that hold the tables.
    """

    def __init__(
        self,
        settings: MetastoreSettings,
        run_merges: MergeRunner,
        *,
        pool_name: str | None = None,
        batch_size: int = 1,
        storage_options: StorageOptions | None = None,
    ) -> None:
        self._settings = settings
        self._run_merges = run_merges
        self._pool_names = (None, _DEFAULT_POOL) if pool_name in {None, _DEFAULT_POOL} else (pool_name,)
        self._batch_size = batch_size
        self._options = storage_options
        self._stop = StopRequest()

    def stop(self) -> None:
        """End :meth:`serve` after the compactions in progress; a signal's handler may call this."""
        self._stop.make()

    def serve(
        self,
        *,
        timeout_s: float | None = None,
        max_compactions: int | None = None,
        poll_s: float = 5.0,
        until_empty: bool = False,
        on_report: Callable[[CompactionReport], None] | None = None,
    ) -> list[CompactionReport]:
        """Serve until the time is up, the number is reached, or :meth:`stop` is called.

        :param timeout_s: seconds after which no new request begins.
        :param max_compactions: the most requests to serve.
        :param poll_s: seconds between two polls of an empty queue.
        :param until_empty: end when the queue is empty.
        :param on_report: receives the report of each served request.
        :raises MetastoreError: the metastore does not answer or refuses the call.
        """
        self._warn_of_the_cleaner()
        begun = time.monotonic()
        reports: list[CompactionReport] = []
        while not self._stop.wait(0):
            wanted = self._batch_size if max_compactions is None else max_compactions - len(reports)
            room = min(self._batch_size, wanted)
            if room <= 0 or (timeout_s is not None and time.monotonic() - begun >= timeout_s):
                break
            served = self.serve_next(room)
            for report in served:
                reports.append(report)
                if on_report is not None:
                    on_report(report)
            if not served:
                if until_empty:
                    break
                left = poll_s if timeout_s is None else timeout_s - (time.monotonic() - begun)
                self._stop.wait(max(0.0, min(poll_s, left)))
        return reports

    def serve_next(self, count: int = 1) -> list[CompactionReport]:
        """Take up to ``count`` requests from the queue and carry them out.

        A failed request is marked as failed in the queue, with the text of its error, and reported.

        :raises MetastoreError: the metastore does not answer or refuses the call.
        """
        with MetastoreClient(self._settings) as client:
            taken: list[_Compaction] = []
            with ExitStack() as unfinished:
                for request in self._take(client, count):
                    taken.append(_Compaction(client, self._options, request))
                    unfinished.callback(taken[-1].give_up)
                if taken:
                    self._carry_out(taken)
        return [compaction.report for compaction in taken if compaction.report is not None]

    def _warn_of_the_cleaner(self) -> None:
        with MetastoreClient(self._settings) as client:
            findings = examine_cleaner(client)
        for finding in findings:
            if finding.state == "warning":
                log.warning("%s. %s", finding.detail, finding.remedy)

    def _take(self, client: MetastoreClient, count: int) -> Iterator[types.CompactionInfoStruct]:
        for pool_name in self._pool_names:
            request = types.FindNextCompactRequest(
                workerId=worker_name(), workerVersion=__version__, poolName=pool_name
            )
            while count > 0:
                compaction = client.call("find_next_compact2", request).ci
                # An empty answer is a struct without an id.
                if compaction is None or not compaction.id:
                    break
                count -= 1
                yield compaction

    def _carry_out(self, compactions: Sequence[_Compaction]) -> None:
        with _heartbeats(self._settings, compactions) as heart:
            for compaction in compactions:
                compaction.begin()
            self._merge([compaction for compaction in compactions if compaction.report is None])
            # The heartbeat's age decides too, because a suspended process has noticed no loss.
            if heart.loss is not None:
                log.error("%d compactions are not published: their transactions are lost.", len(compactions))
        for compaction in compactions:
            compaction.end()

    def _merge(self, compactions: Sequence[_Compaction]) -> None:
        merges = [merge for compaction in compactions for merge in compaction.plan.merges]
        try:
            outcomes = list(self._run_merges(merges)) if merges else []
        except HiveFederationError as error:
            for compaction in compactions:
                compaction.fail(error)
            return
        start = 0
        for compaction in compactions:
            end = start + len(compaction.plan.merges)
            compaction.take_outcomes(outcomes[start:end])
            start = end


class _Compaction:
    """A request in progress, which has a ``report`` once its state is final."""

    def __init__(
        self, client: MetastoreClient, options: StorageOptions | None, request: types.CompactionInfoStruct
    ) -> None:
        self.request: Any = request
        self.txn_id = 0
        self.plan = CompactionPlan(decision=Decision.REFUSE)
        self.report: CompactionReport | None = None
        self.lost: HiveFederationError | None = None
        self._client = client
        self._options = options
        self._table: CompactedTable | None = None
        self._outcomes: Sequence[MergeOutcome] = ()
        self._begun = time.monotonic()

    @property
    def name(self) -> str:
        return f"{self.request.dbname}.{self.request.tablename}"

    def begin(self) -> None:
        """Open the transaction and plan the compaction; finish a request that needs no merge."""
        try:
            self._begin()
        except _Refused as refused:
            self._refuse(str(refused))
        except HiveFederationError as error:
            self.fail(error)

    def take_outcomes(self, outcomes: Sequence[MergeOutcome | HiveFederationError]) -> None:
        """Store the results of the merges, or fail with their first error."""
        for outcome in outcomes:
            if isinstance(outcome, HiveFederationError):
                self.fail(outcome)
                return
        self._outcomes = [outcome for outcome in outcomes if isinstance(outcome, MergeOutcome)]

    def end(self) -> None:
        """Publish the new directories, commit, and mark the request."""
        if self.report is not None or self._table is None:
            return
        try:
            if self.lost is not None:
                raise self.lost
            publish(self.plan, self._table.location, self._table.file_format, self._options)
            self._finish("compacted")
        except HiveFederationError as error:
            self.fail(error)

    def fail(self, error: HiveFederationError) -> None:
        """Mark the request as failed and abort its transaction."""
        log.error("%s compaction %s: %s", self.name, self.request.id, error)
        self.request.errorMessage = f"{type(error).__name__}: {error}"
        # A compaction shows nothing before its commit, so another transaction may always repeat its work.
        retryable = error.retryable or isinstance(error, TransactionAbortedError | OutcomeUnknownError)
        self._decided("failed", self.request.errorMessage, retryable=retryable)
        self._undo()

    def give_up(self) -> None:
        """Mark the request as failed if the worker ends before the request has a report."""
        if self.report is None:
            self.request.errorMessage = "The worker was stopped."
            self._decided("failed", self.request.errorMessage)
            self._undo()

    def _begin(self) -> None:
        request, client = self.request, self._client
        kind = _KINDS.get(request.type)
        if kind is None:
            raise _Refused(
                f"{_kind_name(request.type)} compaction is not served here: Hive's own worker can."
            )
        try:
            described = compacted_table(
                client,
                request.dbname,
                request.tablename,
                request.partitionname,
                properties=request.properties,
            )
        except NoSuchObjectError as error:
            raise _Refused(f"{error.message} Assuming it was dropped and moving on.") from error
        except ConfigurationError as error:
            raise _Refused(str(error)) from error
        if not request.runas:
            # Without a user the cleaner fails for ever.
            request.runas = run_as(described.table, described.location, self._options, client)
        (self.txn_id,) = client.open_txns(user=request.runas, kind=types.TxnType.COMPACTION)
        self._lock()
        snapshot = take_snapshots(client, [self.name])[self.name.lower()]
        if described.compacted is None:
            # The request is for aborted dynamic partitions of a partitioned table, which need cleaning only.
            self._stand_for(sweep_table(client, described.table, snapshot, self._options))
            self._finish("cleaning")
            return
        self._table = described.compacted
        self._plan(snapshot, kind)

    def _stand_for(self, highest_write_id: int) -> None:
        """Report the compaction's highest write id, up to which the metastore forgets aborted write ids."""
        self.request.highestWriteId = highest_write_id
        self._client.call("update_compactor_state", self.request, self.txn_id)

    def _plan(self, snapshot: Snapshot, kind: CompactionKind) -> None:
        if self._table is None:
            return
        location = self._table.location
        remove_leftovers(location, snapshot.txns, self._options)
        listing = list_files(location, options=self._options, missing_ok=True, empty_directories=True)
        write_ids = compactor_write_ids(snapshot.write_ids, listing, snapshot.txns)
        state = chosen(location, listing, write_ids, snapshot.txns, self._options)
        plan = plan_compaction(self._table, state, write_ids, kind, self.txn_id)
        if plan.decision is Decision.REFUSE:
            self._refuse(plan.reason, unneeded=True)
            return
        remove_directories(location, state.aborted, self._options)
        if plan.decision is Decision.CLEAN:
            self._stand_for(forgettable(state, write_ids))
            self._finish("cleaning")
        else:
            self._stand_for(write_ids.high_watermark)
            self.plan = placed(plan, location)

    def _lock(self) -> None:
        # The lock keeps the table or partition from being dropped (AcidCompactionService.CompactionTxn.open).
        request = self.request
        component = types.LockComponent(
            type=types.LockType.SHARED_READ,
            level=types.LockLevel.PARTITION if request.partitionname else types.LockLevel.TABLE,
            dbname=request.dbname,
            tablename=request.tablename,
            partitionname=request.partitionname,
            operationType=types.DataOperationType.SELECT,
            isTransactional=True,
        )
        answer = self._client.lock([component], txn_id=self.txn_id, user=request.runas)
        if answer.state != types.LockState.ACQUIRED:
            raise LockTimeoutError(
                f"{self.name}: the lock for a compaction is not granted at once.",
                remedy="Compact when no exclusive lock is held.",
                table=self.name,
            )

    def _finish(self, state: str) -> None:
        """Commit, then mark the request for the cleaner.

        Hive's worker does both in the other order (``AcidCompactionService``). Here the commit comes first,
        because it notes in the request how far the cleaner may look. A cleaner that runs before the commit
        treats all transactions as open, and removes nothing (``ReadyToCleanHandler``, ``CompactionCleaner``).
        If the worker is killed between the two steps, the next compaction finds no files to merge and leaves
        the directories to the cleaner.
        """
        self._commit()
        self._have_all_waited_for()
        self._client.call("mark_compacted", self.request)
        self._decided(state)

    def _have_all_waited_for(self) -> None:
        """Make the cleaner wait for every transaction that was open when the compaction committed.

        The cleaner would not wait for the newest of them: the commit notes the highest id, and the cleaner
        runs when no lower transaction is open (``CommitTxnFunction``, ``ReadyToCleanHandler``). It would then
        remove files that this reader still reads. A second transaction, opened after the commit, has a higher
        id than all of them, and every later reader sees the result of the compaction.
        """
        (self.txn_id,) = self._client.open_txns(user=self.request.runas, kind=types.TxnType.COMPACTION)
        self._client.call("update_compactor_state", self.request, self.txn_id)
        self._commit()

    def _refuse(self, reason: str, *, unneeded: bool = False) -> None:
        self.request.errorMessage = reason
        self._client.call("mark_refused", self.request)
        if self.txn_id:
            self._commit()
        self._decided("refused", reason, unneeded=unneeded)

    def _commit(self) -> None:
        commit_patiently(
            lambda: self._client.commit_txn(self.txn_id, kind=types.TxnType.COMPACTION), self.txn_id
        )
        self.txn_id = 0

    def _undo(self) -> None:
        # Published directories stay: their transaction is aborted or, if the commit's answer was lost, maybe
        # committed; the cleaner distinguishes the two.
        try:
            self._client.call("mark_failed", self.request)
            if self.txn_id:
                self._client.abort_txns([self.txn_id])
            if self._table is not None:
                remove_staging(self.plan, self._table.location, self._options)
        except HiveFederationError as error:
            log.error("%s compaction %s cannot be undone: %s", self.name, self.request.id, error)

    def _decided(
        self, state: str, message: str = "", *, unneeded: bool = False, retryable: bool = False
    ) -> None:
        request = self.request
        self.report = CompactionReport(
            id=request.id,
            table=self.name,
            partition=request.partitionname or "",
            kind=_kind_name(request.type),
            state=state,
            message=message,
            unneeded=unneeded,
            retryable=retryable,
            directories=self.plan.directories if state == "compacted" else (),
            rows=sum(outcome.rows for outcome in self._outcomes),
            deleted=sum(outcome.deleted for outcome in self._outcomes),
            size_bytes=sum(outcome.size_bytes for outcome in self._outcomes),
            seconds=round(time.monotonic() - self._begun, 3),
        )


class _Refused(Exception):  # noqa: N818 - an answer, not an error
    """A request that cannot be served, now or later."""


def _kind_name(kind: Any) -> str:
    return types.CompactionType(kind).name.lower()


def _heartbeats(settings: MetastoreSettings, compactions: Sequence[_Compaction]) -> Heartbeat:
    """Return a heartbeat that keeps the transactions alive and marks compactions that lose theirs."""
    with MetastoreClient(settings) as client:
        timeout_s = transaction_timeout_s(client)

    def beat(client: MetastoreClient) -> None:
        for compaction in compactions:
            if compaction.txn_id and compaction.lost is None:
                answer = client.heartbeat_txn_range(compaction.txn_id, compaction.txn_id)
                if compaction.txn_id in {*(answer.aborted or ()), *(answer.nosuch or ())}:
                    compaction.lost = TransactionAbortedError(
                        f"The compaction's transaction {compaction.txn_id} was aborted meanwhile.",
                        txn_id=compaction.txn_id,
                    )

    def lose(loss: Loss) -> None:
        for compaction in compactions:
            compaction.lost = compaction.lost or TransactionAbortedError(
                f"The compaction's transaction {compaction.txn_id} is lost: {loss.description}.",
                txn_id=compaction.txn_id,
            )

    return Heartbeat(
        settings,
        beat,
        name=f"{len(compactions)} compactions",
        interval_s=min(_HEARTBEAT_S, timeout_s / 2),
        silence_s=timeout_s * SILENCE_SHARE,
        on_loss=lose,
    )

"""Serving the metastore's compaction queue, as Hive's own ``Worker`` does, with no Hive engine.

A compaction is a transaction of its own kind. The metastore hands out a request, the worker opens a
transaction, tells the highest write id it will cover, merges files and commits; from that moment readers take
the new directories. Then it marks the request compacted, and the metastore's cleaner removes the old ones as
soon as no reader needs them. Killed before the commit, nothing of it is visible: the transaction times out
(``metastore.txn.timeout``), and what lies about is hidden or belongs to an aborted transaction.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from airflow_hive_federation.errors import (
    ConfigurationError,
    HiveFederationError,
    LockTimeoutError,
    MetastoreServerError,
    NoSuchObjectError,
    OutcomeUnknownError,
    TransactionAbortedError,
)
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.doctor import examine_cleaner
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.transactions.heartbeat import (
    SILENCE_SHARE,
    Heartbeat,
    Loss,
    transaction_timeout_s,
)
from airflow_hive_federation.transactions.snapshots import Snapshot, take_snapshots

log = logging.getLogger(__name__)

#: What merges bucket files: one answer a merge, in order.
MergeRunner = Callable[[Sequence[BucketMerge]], Sequence["MergeOutcome | HiveFederationError"]]

_HEARTBEAT_S = 30.0
#: SHOW COMPACTIONS says it of requests that name no pool; by this name, the queue does not hand them out
#: (``Constants.COMPACTION_DEFAULT_POOL``, ``NextCompactionFunction``).
_DEFAULT_POOL = "default"
#: The metastore's database gives up on a deadlock.
_COMMIT_PAUSES_S = (0.2, 1.0)
_KINDS = {types.CompactionType.MAJOR: CompactionKind.MAJOR, types.CompactionType.MINOR: CompactionKind.MINOR}


@dataclass(frozen=True, kw_only=True)
class CompactionReport:
    """What became of one request.

    :param id: its number in the queue.
    :param table: ``database.table``.
    :param partition: the partition's name; empty if there is none.
    :param kind: ``major``, ``minor``, or another kind of Hive's, which is refused here.
    :param state: ``compacted``, ``cleaning`` (nothing to merge, the cleaner has work), ``refused`` or
        ``failed``.
    :param message: why it was refused or has failed.
    :param directories: directories made.
    :param rows: rows in them.
    :param deleted: rows left out because they were deleted.
    :param size_bytes: length of their files.
    :param seconds: how long it took.
    """

    id: int
    table: str
    partition: str
    kind: str
    state: str
    message: str = ""
    directories: tuple[str, ...] = ()
    rows: int = 0
    deleted: int = 0
    size_bytes: int = 0
    seconds: float = 0.0


class CompactionWorker:
    """Serves the queue of one metastore.

    :param settings: of the metastore.
    :param run_merges: what merges bucket files; see :func:`.runners.in_threads` and the Spark job.
    :param pool_name: the worker pool to serve (``ALTER TABLE … COMPACT … POOL 'name'``); ``None`` serves the
        requests that name none, and so does ``default``, as SHOW COMPACTIONS calls it.
    :param batch: requests served together, whose bucket files are merged side by side.
    :param storage_options: of the stores the tables lie on.
    """

    def __init__(
        self,
        settings: MetastoreSettings,
        run_merges: MergeRunner,
        *,
        pool_name: str | None = None,
        batch: int = 1,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings = settings
        self._run_merges = run_merges
        self._pool_names = (None, _DEFAULT_POOL) if pool_name in {None, _DEFAULT_POOL} else (pool_name,)
        self._batch = batch
        self._options = storage_options
        self._stopping = threading.Event()

    def stop(self) -> None:
        """End :meth:`serve` after the compactions at work."""
        self._stopping.set()

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

        :param timeout_s: no new request is begun after so many seconds.
        :param max_compactions: so many requests at most.
        :param poll_s: seconds between two looks at an empty queue.
        :param until_empty: end when the queue is empty.
        :param on_report: called for each request served.
        :raises MetastoreError: the metastore cannot be asked.
        """
        self._warn_of_the_cleaner()
        begun = time.monotonic()
        reports: list[CompactionReport] = []
        while not self._stopping.is_set():
            room = (
                self._batch if max_compactions is None else min(self._batch, max_compactions - len(reports))
            )
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
                self._stopping.wait(max(0.0, min(poll_s, left)))
        return reports

    def serve_next(self, count: int = 1) -> list[CompactionReport]:
        """Take up to ``count`` requests from the queue and carry them out.

        What fails is marked failed in the queue, with the error's text, and reported.

        :raises MetastoreError: the metastore cannot be asked.
        """
        with MetastoreClient(self._settings) as client:
            taken: list[_Compaction] = []
            with ExitStack() as unfinished:
                for request in self._take(client, count):
                    taken.append(_Compaction(client, self._options, request))
                    unfinished.callback(taken[-1].give_up)
                if taken:
                    self._carry_out(taken)
        return [one.report for one in taken if one.report is not None]

    def _warn_of_the_cleaner(self) -> None:
        with MetastoreClient(self._settings) as client:
            findings = examine_cleaner(client)
        for one in findings:
            if one.state == "warning":
                log.warning("%s. %s", one.detail, one.remedy)

    def _take(self, client: MetastoreClient, count: int) -> Iterator[types.CompactionInfoStruct]:
        for pool_name in self._pool_names:
            request = types.FindNextCompactRequest(
                workerId=worker_id(), workerVersion=__version__, poolName=pool_name
            )
            while count > 0:
                found = client.call("find_next_compact2", request).ci
                # An empty answer is a struct without an id.
                if found is None or not found.id:
                    break
                count -= 1
                yield found

    def _carry_out(self, compactions: Sequence[_Compaction]) -> None:
        with _heartbeats(self._settings, compactions) as heart:
            for one in compactions:
                one.begin()
            self._merge([one for one in compactions if one.report is None])
            # The age decides, not only what the thread has noticed: this process may have been suspended.
            if heart.loss is not None:
                log.error("%d compactions are not published: their transactions are lost.", len(compactions))
        for one in compactions:
            one.end()

    def _merge(self, compactions: Sequence[_Compaction]) -> None:
        merges = [merge for one in compactions for merge in one.plan.merges]
        try:
            outcomes = list(self._run_merges(merges)) if merges else []
        except HiveFederationError as error:
            for one in compactions:
                one.fail(error)
            return
        start = 0
        for one in compactions:
            end = start + len(one.plan.merges)
            one.take_outcomes(outcomes[start:end])
            start = end


def worker_id() -> str:
    """Names this process in the queue.

    It must not begin with the host's name: a metastore that starts on this host takes such entries for those
    of its own dead workers (``CompactionTxnHandler.revokeFromLocalWorkers``).
    """
    return f"hive-federation-{socket.gethostname()}-{os.getpid()}"


class _Compaction:
    """One request on its way; ``report`` is set once it is decided."""

    def __init__(
        self, client: MetastoreClient, options: Mapping[str, Any] | None, request: types.CompactionInfoStruct
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
        """Open the transaction and plan; decide what needs no merging."""
        try:
            self._begin()
        except _Refused as refused:
            self._refuse(str(refused))
        except HiveFederationError as error:
            self.fail(error)

    def take_outcomes(self, outcomes: Sequence[MergeOutcome | HiveFederationError]) -> None:
        """Keep what was made, or fail by the first error."""
        for one in outcomes:
            if isinstance(one, HiveFederationError):
                self.fail(one)
                return
        self._outcomes = [one for one in outcomes if isinstance(one, MergeOutcome)]

    def end(self) -> None:
        """Publish, mark and commit."""
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
        """Mark the request failed and abort."""
        log.error("%s compaction %s: %s", self.name, self.request.id, error)
        self.request.errorMessage = f"{type(error).__name__}: {error}"
        self._decided("failed", self.request.errorMessage)
        self._undo()

    def give_up(self) -> None:
        """For a worker that ends in the middle: leave no request that looks served."""
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
            found = compacted_table(
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
            # Without it, the cleaner fails for ever.
            request.runas = run_as(found.table, found.location, self._options, client)
        (self.txn_id,) = client.open_txns(user=request.runas, kind=types.TxnType.COMPACTION)
        self._lock()
        snapshot = take_snapshots(client, [self.name])[self.name.lower()]
        if found.compacted is None:
            # Aborted dynamic partitions of a partitioned table: there is nothing to merge, only to clean.
            self._stand_for(sweep_table(client, found.table, snapshot, self._options))
            self._finish("cleaning")
            return
        self._table = found.compacted
        self._plan(snapshot, kind)

    def _stand_for(self, highest_write_id: int) -> None:
        """Tell the metastore how far the compaction goes: so far it forgets which write ids were aborted."""
        self.request.highestWriteId = highest_write_id
        self._client.call("update_compactor_state", self.request, self.txn_id)

    def _plan(self, snapshot: Snapshot, kind: CompactionKind) -> None:
        if self._table is None:
            return
        location = self._table.location
        remove_leftovers(location, snapshot.txns, self._options)
        listing = list_files(location, options=self._options, missing_ok=True, empty_directories=True)
        write_ids = compactor_write_ids(snapshot.write_ids, listing)
        state = chosen(location, listing, write_ids, snapshot.txns, self._options)
        plan = plan_compaction(self._table, state, write_ids, kind, self.txn_id)
        if plan.decision is Decision.REFUSE:
            self._refuse(plan.reason)
            return
        remove_directories(location, state.aborted, self._options)
        if plan.decision is Decision.CLEAN:
            self._stand_for(forgettable(state, write_ids))
            self._finish("cleaning")
        else:
            self._stand_for(write_ids.high_watermark)
            self.plan = placed(plan, location)

    def _lock(self) -> None:
        # So that the table or partition is not dropped meanwhile (AcidCompactionService.CompactionTxn.open).
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
        """Commit, and hand the rest to the cleaner.

        In this order, unlike Hive's worker (``AcidCompactionService``): by the commit the request learns how
        far the cleaner may look. A cleaner that comes before takes all transactions for open, and removes
        nothing (``ReadyToCleanHandler``, ``CompactionCleaner``). Killed in between, the next compaction finds
        nothing to merge and sends the cleaner.
        """
        self._commit()
        self._have_all_waited_for()
        self._client.call("mark_compacted", self.request)
        self._decided(state)

    def _have_all_waited_for(self) -> None:
        """Have the cleaner wait for every transaction that was open when the compaction committed.

        It would not wait for the newest of them: the commit notes the highest id, and the cleaner comes when
        no lower one is open (``CommitTxnFunction``, ``ReadyToCleanHandler``). That reader's files would go
        under its hands. A transaction opened after the commit has a higher id than all of them, and whoever
        comes after it sees what the compaction has made.
        """
        (self.txn_id,) = self._client.open_txns(user=self.request.runas, kind=types.TxnType.COMPACTION)
        self._client.call("update_compactor_state", self.request, self.txn_id)
        self._commit()

    def _refuse(self, reason: str) -> None:
        self.request.errorMessage = reason
        self._client.call("mark_refused", self.request)
        if self.txn_id:
            self._commit()
        self._decided("refused", reason)

    def _commit(self) -> None:
        # Committing again is fine, whatever became of the first try.
        for pause_s in (*_COMMIT_PAUSES_S, None):
            try:
                self._client.commit_txn(self.txn_id, kind=types.TxnType.COMPACTION)
            except (MetastoreServerError, OutcomeUnknownError):
                if pause_s is None:
                    raise
                time.sleep(pause_s)
            else:
                break
        self.txn_id = 0

    def _undo(self) -> None:
        # Published directories stay: they belong to a transaction that is aborted or, if the commit's answer
        # was lost, perhaps committed; the cleaner knows.
        try:
            self._client.call("mark_failed", self.request)
            if self.txn_id:
                self._client.abort_txns([self.txn_id])
            if self._table is not None:
                remove_staging(self.plan, self._table.location, self._options)
        except HiveFederationError as error:
            log.error("%s compaction %s cannot be undone: %s", self.name, self.request.id, error)

    def _decided(self, state: str, message: str = "") -> None:
        request = self.request
        self.report = CompactionReport(
            id=request.id,
            table=self.name,
            partition=request.partitionname or "",
            kind=_kind_name(request.type),
            state=state,
            message=message,
            directories=self.plan.directories if state == "compacted" else (),
            rows=sum(one.rows for one in self._outcomes),
            deleted=sum(one.deleted for one in self._outcomes),
            size_bytes=sum(one.size_bytes for one in self._outcomes),
            seconds=round(time.monotonic() - self._begun, 3),
        )


class _Refused(Exception):  # noqa: N818 - an answer, not an error
    """The request cannot be served, now or later."""


def _kind_name(kind: Any) -> str:
    return types.CompactionType(kind).name.lower()


def _heartbeats(settings: MetastoreSettings, compactions: Sequence[_Compaction]) -> Heartbeat:
    """Keeps the transactions alive while the block runs; tells a compaction whose transaction is lost."""
    with MetastoreClient(settings) as client:
        timeout_s = transaction_timeout_s(client)

    def beat(client: MetastoreClient) -> None:
        for one in compactions:
            if one.txn_id and one.lost is None:
                answer: Any = client.heartbeat_txn_range(one.txn_id, one.txn_id)
                if one.txn_id in {*(answer.aborted or ()), *(answer.nosuch or ())}:
                    one.lost = TransactionAbortedError(
                        f"The compaction's transaction {one.txn_id} was aborted meanwhile.", txn_id=one.txn_id
                    )

    def lose(loss: Loss) -> None:
        for one in compactions:
            one.lost = one.lost or TransactionAbortedError(
                f"The compaction's transaction {one.txn_id} is lost: {loss.word}.", txn_id=one.txn_id
            )

    return Heartbeat(
        settings,
        beat,
        name=f"{len(compactions)} compactions",
        interval_s=min(_HEARTBEAT_S, timeout_s / 2),
        silence_s=timeout_s * SILENCE_SHARE,
        on_loss=lose,
    )

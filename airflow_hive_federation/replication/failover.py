"""Fails a replication over: source and target change places, and the way back needs no second bootstrap.

1. *Start* marks the source (``repl.failover.endpoint``, ``readonly``), and waits for its open transactions,
   or aborts them.
2. The last increment and a verification follow, as in any cycle.
3. *Switch* makes the source the target of the reversed policy, then lets the target go. A reader of the
   markers in between sees two replicas, never two sides that may be written.

Every step that marks a side holds the locks that cycles hold: the lock in the source's metastore and, if the
step concerns the target, the lock in the target's metastore too. The step reads the markers after it has
taken the locks, and decides by those markers. So a roll-back never meets a half-finished switch.

A metastore alone stops no writer; Hive does, if ``EnforceReadOnlyDatabaseHook`` is configured. So the
switch checks for writes since the last increment, and refuses to continue if it finds any.

The switch records the source's state, as a target, in a dump of the new source that is never loaded. Both
sides have the same tables, write ids and rows, and increments of the way back continue from that dump's
event.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import (
    FailoverError,
    MetastoreTimeoutError,
    MetastoreUnreachableError,
    NoSuchObjectError,
    TargetNotOursError,
    TunnelUnreachableError,
)
from airflow_hive_federation.progress.events import (
    FailedOver,
    NoFailoverStarted,
    SourceIsReplica,
    SourceMarked,
    SourceWritable,
    TargetNotChecked,
)
from airflow_hive_federation.progress.kinds import Step
from airflow_hive_federation.progress.observers import LOGGED, Observer, Steps
from airflow_hive_federation.progress.words import words
from airflow_hive_federation.replication.cycle import dump_next_increment
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import (
    DrainStart,
    abort_remaining,
    begin_drain,
    has_drained,
)
from airflow_hive_federation.replication.failover_results import FailoverResult
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.manifest import FinishedLoad
from airflow_hive_federation.replication.group_policy import refuse_alone
from airflow_hive_federation.replication.metadata.spark_tables import data_location
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.cycle_lock import CycleLock
from airflow_hive_federation.replication.replica.database import OLDER_SOURCE, find_layout, refuse_older
from airflow_hive_federation.replication.replica.differences import metadata_differences
from airflow_hive_federation.replication.replica.position import loaded_dump
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.storage.filesystem import canonical, parse_location
from airflow_hive_federation.transactions.lease import end_lease

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool

#: A side that is lost causes one of these errors.
SILENCE = (MetastoreUnreachableError, MetastoreTimeoutError, TunnelUnreachableError)
_SOURCE = {markers.FAILOVER: "SOURCE", markers.READ_ONLY: "true"}
#: These parameters make a database a target.
_TARGET = (
    markers.POLICY,
    markers.CHECKPOINT,
    markers.LAST_ID,
    markers.TARGET_FOR,
    markers.CYCLES,
    markers.FAILOVER,
    markers.READ_ONLY,
    markers.GROUP,
    # Whoever replicates into the database later need not drop it for what earlier cycles have aborted.
    markers.INCOMPATIBLE,
)


@dataclass(frozen=True, kw_only=True)
class FailoverReport:
    """The result of a failover.

    :param database: the database of the former target, which may now be written.
    :param replica: the database of the former source, which is now a replica.
    :param event_id: event of the new source from which the way back continues.
    :param policy: the policy of the way back.
    """

    database: str
    replica: str
    event_id: int
    policy: ReplicationPolicy

    @property
    def summary(self) -> str:
        """Return the report as one sentence."""
        return words(self.event)

    @property
    def event(self) -> FailedOver:
        """Return the report as an event of progress."""
        return FailedOver(
            database=self.database,
            replica=self.replica,
            event_id=self.event_id,
            policy=self.policy.name,
        )

    def result(self) -> FailoverResult:
        """Return the report as tasks and commands return it."""
        return FailoverResult(
            converged=True,
            database=self.database,
            event_id=self.event_id,
            replica=self.replica,
            policy=self.policy.to_json(),
            summary=self.summary,
        )


def start_failover(
    source: MetastorePool,
    target: MetastorePool,
    policy: ReplicationPolicy,
    *,
    observer: Observer = LOGGED,
) -> None:
    """Mark the source as failing over, and let its open transactions end. The call may be repeated at will.

    :param source: connections to the source.
    :param target: connections to the target.
    :raises HiveFederationError: as :func:`mark_source` and :func:`end_start`.
    """
    start = mark_source(source, target, policy, observer=observer)
    if start is None:
        return
    with source.client() as client:
        if has_drained(client, start, timeout_s=policy.open_txn_timeout_s, observer=observer):
            return
    end_start(source, policy, start, observer=observer)


def mark_source(
    source: MetastorePool,
    target: MetastorePool,
    policy: ReplicationPolicy,
    *,
    observer: Observer = LOGGED,
) -> DrainStart | None:
    """Mark the source as failing over; return the open transactions, which are to be waited for.

    No lock is held during the wait, so that a start that waits for an hour can be rolled back.

    :param source: connections to the source.
    :param target: connections to the target.
    :return: ``None`` if the source is a replica of the target already.
    :raises FailoverError: the source is a replica of something else.
    :raises TargetNotOursError: the target is not the policy's, or not published yet.
    :raises CycleRunningError: a switch or a roll-back is marking the source at this moment.
    :raises GroupMembershipError: the policy belongs to a consistency group.
    :raises UnsupportedMethodError: the source's metastore cannot hold a replica.
    """
    refuse_alone(policy, "fail over")
    with (
        _source_lock(source, policy, observer) as lock,
        lock.target.client() as source_client,
        target.client() as target_client,
    ):
        if _has_switched(source_client, policy):
            observer(SourceIsReplica(database=policy.source_database))
            return None
        _refuse_replica(source_client, policy)
        refuse_older(source_client, policy.source_database, role="source", remedy=OLDER_SOURCE)
        loaded_dump(target_client, policy)
        _alter(source_client, policy.source_database, _SOURCE)
        lock.prove()
    with source.client() as source_client:
        start = begin_drain(source_client, policy.source_database)
    observer(SourceMarked(database=policy.source_database, transactions=len(start.transactions)))
    return start


def end_start(
    source: MetastorePool, policy: ReplicationPolicy, start: DrainStart, *, observer: Observer = LOGGED
) -> None:
    """Abort those transactions of :func:`mark_source` that are still open.

    :raises FailoverError: the start was rolled back during the wait for them.
    :raises CycleRunningError: a switch or a roll-back is marking the source at this moment.
    """
    with _source_lock(source, policy, observer) as lock, lock.target.client() as source_client:
        _refuse_unmarked(source_client, policy)
        abort_remaining(source_client, start, observer=observer)


def roll_back_failover(
    source: MetastorePool,
    target: MetastorePool,
    policy: ReplicationPolicy,
    *,
    target_lost: bool = False,
    observer: Observer = LOGGED,
) -> None:
    """Undo the start of a failover: the source may be written again.

    :param source: connections to the source.
    :param target: connections to the target, which must still be a replica: a take-over may have let it go
        while the source did not answer.
    :param target_lost: roll back although the target does not answer, because it never will.
    :raises FailoverError: the roles are switched, or the target was let go.
    :raises MetastoreUnreachableError: the target does not answer.
    :raises CycleRunningError: a cycle works on the target, or a start or switch is marking the source.
    """
    with ExitStack() as locks:
        try:
            locks.enter_context(CycleLock(target, policy, fences=False, observer=observer))
            with target.client() as target_client:
                _refuse_let_go(target_client, policy)
        except SILENCE as error:
            if not target_lost:
                raise
            observer(TargetNotChecked(policy=policy.name, reason=str(error)))
        lock = locks.enter_context(_source_lock(source, policy, observer))
        with lock.target.client() as client:
            if _has_switched(client, policy):
                raise FailoverError(
                    f"{policy.source_database} is a replica already: there is nothing to roll back.",
                    remedy="To go back, fail over by the reversed policy.",
                )
            _refuse_replica(client, policy)
            if not _is_marked(client, policy):
                observer(NoFailoverStarted(database=policy.source_database))
                return
            _alter(client, policy.source_database, dict.fromkeys(_SOURCE))
            lock.prove()
    observer(SourceWritable(database=policy.source_database))


def switch_roles(
    source: MetastorePool,
    target: MetastorePool,
    policy: ReplicationPolicy,
    *,
    observer: Observer = LOGGED,
) -> FailoverReport:
    """Make the source a replica of the target.

    If a run is killed at any point, the next run continues it.

    :param source: connections to the source.
    :param target: connections to the target.
    :param observer: receives the events of progress.
    :raises FailoverError: the failover was not started, or the source was written to since the last
        increment, or the source has an object that the target's copy cannot stand for.
    :raises TargetNotOursError: the target is not the policy's.
    :raises CycleRunningError: a cycle works on one of the two databases.
    :raises GroupMembershipError: the policy belongs to a consistency group.
    """
    refuse_alone(policy, "fail over")
    back = reverse_policy(source, policy)
    with CycleLock(target, policy, observer=observer) as own, _source_lock(source, policy, observer) as other:
        return _Switch(
            source=other.target,
            target=own.target,
            policy=policy,
            back=back,
            observer=observer,
            step=Steps(observer, policy.target_database),
            locks=(own, other),
        ).run()


def is_switched(source: MetastorePool, policy: ReplicationPolicy) -> bool:
    """Return whether the source is a replica of the target already, so that a killed switch only has to end.

    :param source: connections to the source.
    """
    with source.client() as client:
        return _has_switched(client, policy)


def reverse_policy(source: MetastorePool, policy: ReplicationPolicy) -> ReplicationPolicy:
    """Return the policy of the way back, which replicates the target to the source.

    :param source: connections to the source.
    :raises FailoverError: the source's external tables lie in several stores.
    """
    with source.client() as client:
        tables = client.get_tables(policy.source_database, client.list_tables(policy.source_database))
        external = [
            str(data_location(table))
            for table in tables
            if table.tableType == "EXTERNAL_TABLE"
            and table.sd
            and policy.replicates(policy.target_table(str(table.tableName)))
        ]
    # Tables may spell the scheme of one store in several ways, of which each call chooses the same.
    roots = {canonical(root): root for root in sorted(map(_root, external))}
    if len(roots) > 1 and not policy.external_prefix:
        raise FailoverError(
            f"External tables of {policy.source_database} lie in several stores: "
            f"{', '.join(sorted(roots))}. A policy of the way back has room for one.",
            remedy="Replicate those of each store by a policy of its own (include_tables).",
        )
    return policy.reversed(next(iter(roots.values()), None))


@dataclass(frozen=True, kw_only=True)
class _Switch:
    source: MetastorePool
    target: MetastorePool
    policy: ReplicationPolicy
    back: ReplicationPolicy
    observer: Observer
    step: Steps
    locks: tuple[CycleLock, ...]

    def run(self) -> FailoverReport:
        if not is_switched(self.source, self.policy):
            self.step(Step.CHECK)
            self._refuse_unready()
            self.step(Step.BASELINE)
            baseline = self._baseline()
            self.step(Step.SOURCE_BECOMES_TARGET)
            # Writing the baseline took time, in which the source may have been changed.
            self._refuse_unready()
            self._prove()
            self._demote(baseline)
        self.step(Step.TARGET_BECOMES_SOURCE)
        self._prove()
        self._promote()
        self.step(Step.END_FAILOVER)
        with self.source.client() as client:
            _alter(client, self.policy.source_database, {markers.FAILOVER: None})
            parameters = client.get_database(self.policy.source_database).parameters or {}
        self._prove()
        report = FailoverReport(
            database=self.policy.target_database,
            replica=self.policy.source_database,
            event_id=int(parameters[markers.LAST_ID]),
            policy=self.back,
        )
        self.observer(report.event)
        return report

    def _prove(self) -> None:
        """Make sure that this process holds both locks.

        :raises CycleLostError: one of them is lost.
        """
        for lock in self.locks:
            lock.prove()

    def _refuse_unready(self) -> None:
        with self.source.client() as client:
            _refuse_unmarked(client, self.policy)
        dumped = dump_next_increment(self.source, self.target, self.policy, observer=self.observer)
        if not dumped.idle:
            end_lease(self.source, dumped.lease)
            raise FailoverError(
                f"{self.policy.source_database} was changed since the last increment: {dumped.events} "
                f"events, {dumped.tables} tables, {dumped.transactions} transactions.",
                remedy="Stop the writers of that database, run one more cycle, and then switch.",
            )

    def _baseline(self) -> DumpDirectory:
        """Record the state of both sides in a dump of the new source, as of one of its events."""
        with self.target.client() as client:
            start = begin_drain(client, self.policy.target_database)
        dumped = dump_bootstrap(self.target, self.back, start, adopted=True, observer=self.observer)
        end_lease(self.target, dumped.lease)
        directory = DumpDirectory(dumped.dump, self.policy.storage_options)
        with self.source.client() as client:
            layout = find_layout(client, self.back)
            differences = metadata_differences(client, layout, TableIndex(directory))
        if differences:
            lines = "\n  ".join(map(str, differences))
            raise FailoverError(
                f"{self.policy.source_database} cannot be a replica of what the target has:\n  {lines}",
                remedy="Repair the target, or leave these tables out (exclude_tables).",
                differences=[str(difference) for difference in differences],
            )
        return directory

    def _demote(self, baseline: DumpDirectory) -> None:
        markings = {
            **markers.database_markers(self.back.name, baseline.uri),
            markers.LAST_ID: str(baseline.manifest().event_id),
            markers.CYCLES: None,
        }
        with self.source.client() as client:
            _alter(client, self.policy.source_database, markings)
        baseline.finish_load(FinishedLoad(database=self.policy.source_database, adopted=True))

    def _promote(self) -> None:
        if not is_switched(self.source, self.policy):
            raise FailoverError(
                f"{self.policy.source_database} is no replica any more: somebody has altered it meanwhile. "
                f"{self.policy.target_database} stays a replica.",
                remedy="Run the switch again.",
            )
        with self.target.client() as client:
            parameters = client.get_database(self.policy.target_database).parameters or {}
            owner = parameters.get(markers.POLICY)
            if owner is None:
                return
            if owner != self.policy.name:
                raise TargetNotOursError(
                    f"Database {self.policy.target_database} belongs to replication policy {owner!r}.",
                    remedy="Fail over by that policy.",
                    database=self.policy.target_database,
                    owner=owner,
                )
            let_go(client, self.policy)


def let_go(client: MetastoreClient, policy: ReplicationPolicy) -> None:
    """Make a policy's target an ordinary database, which may be written.

    :param client: client of the target.
    """
    _alter(client, policy.target_database, dict.fromkeys(_TARGET))


def _source_lock(source: MetastorePool, policy: ReplicationPolicy, observer: Observer) -> CycleLock:
    """Return the lock of the source's database as the target of the way back.

    Every step that marks the source holds this lock.
    """
    return CycleLock(source, policy.reversed(), fences=False, observer=observer)


def _is_marked(source: MetastoreClient, policy: ReplicationPolicy) -> bool:
    parameters = source.get_database(policy.source_database).parameters or {}
    return parameters.get(markers.FAILOVER) == _SOURCE[markers.FAILOVER]


def _refuse_let_go(target: MetastoreClient, policy: ReplicationPolicy) -> None:
    try:
        parameters = target.get_database(policy.target_database).parameters or {}
    except NoSuchObjectError:
        return
    if parameters.get(markers.POLICY) != policy.name:
        raise FailoverError(
            f"Target database {policy.target_database} is no replica of policy {policy.name!r} any more: it "
            f"may be written. {policy.source_database} stays closed.",
            remedy="Find out who took over; then drop one of the two databases and replicate the other.",
        )


def _refuse_unmarked(source: MetastoreClient, policy: ReplicationPolicy) -> None:
    if not _is_marked(source, policy):
        raise FailoverError(
            f"The failover of {policy.source_database} was not started, or was rolled back.",
            remedy="Start it (FailoverStartOperator), then run a cycle and a verification.",
        )


def _refuse_replica(source: MetastoreClient, policy: ReplicationPolicy) -> None:
    owner = (source.get_database(policy.source_database).parameters or {}).get(markers.POLICY)
    if owner is not None:
        raise FailoverError(
            f"{policy.source_database} is a replica itself, of policy {owner!r}: a database has one source.",
            remedy="Fail over by that policy first, or drop the target and replicate it from that source.",
        )


def _has_switched(source: MetastoreClient, policy: ReplicationPolicy) -> bool:
    parameters = source.get_database(policy.source_database).parameters or {}
    return parameters.get(markers.POLICY) == policy.reversed().name and markers.LAST_ID in parameters


def _alter(client: MetastoreClient, database: str, parameters: Mapping[str, str | None]) -> None:
    """Set database parameters in one call; ``None`` removes a parameter."""
    altered = client.get_database(database)
    before = dict(altered.parameters or {})
    after = {**before, **parameters}
    altered.parameters = {name: value for name, value in after.items() if value is not None}
    if altered.parameters != before:
        client.alter_database(database, altered)


def _root(location: str) -> str:
    place = parse_location(location)
    if not place.authority:
        return f"{place.scheme}:/"
    # Tables get locations below it: with another spelling, as ``s3:`` for ``s3a:``, Hadoop finds no driver.
    return f"{location.partition(':')[0]}://{place.authority}/"

"""Follows a source: runs a cycle as soon as the source's event log has an event that concerns the policy.

A follower asks for the source's last event at a short interval, and reads the events after the one that it
has read before. Files of external tables change without an event, and events of other databases move the log
on, so it also runs a cycle when none was run for a while. Its cycles are those of a schedule: each takes the
target's lock, reads the target's position, and continues what a killed cycle has left. After a kill at any
moment, the next follower, or a scheduled cycle, ends in the same state.

A request to stop ends the cycle before its next step, as a kill would. A cycle that is published already is
carried on to its end.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import (
    DumpIncompleteError,
    HiveFederationError,
    OutcomeUnknownError,
    StorageCredentialsExpiredError,
)
from airflow_hive_federation.progress.cycle_events import (
    CycleFailed,
    CycleFollowed,
    FollowEnded,
    FollowStarted,
    LagSeen,
)
from airflow_hive_federation.progress.events import (
    Event,
    Published,
    StepStarting,
    TableDumped,
    TransactionsOpen,
)
from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.replication.cycle import dump_next_increment, is_published, load_dump, load_idle
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain, drain
from airflow_hive_federation.replication.group_policy import refuse_alone
from airflow_hive_federation.replication.load.summary import CopyRunner
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.cycle_history import BOOTSTRAP, INCREMENT
from airflow_hive_federation.replication.source_watch import NoticedEvent, SourceWatch
from airflow_hive_federation.waiting import StopRequest

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastorePool

#: Events that wait for a cycle and are kept; while there are as many, no others are read.
_PENDING = 10_000
#: Errors that are terminal for one cycle, and not for the next one, which begins from the target's state.
_MENDED_BY_A_CYCLE = (DumpIncompleteError, OutcomeUnknownError)
#: Errors that only another process can mend: it gets new credentials.
_MENDED_BY_A_START = (StorageCredentialsExpiredError,)
#: Events at which a cycle may end.
_STOPS = (StepStarting, TableDumped, TransactionsOpen)


@dataclass(frozen=True, kw_only=True)
class FollowPauses:
    """The pauses of a follower, in seconds.

    :param look_s: between two looks at the source's last event.
    :param at_least_every_s: after which a cycle runs even without an event.
    :param longest_s: the longest pause between two tries while a metastore or a store is away.
    """

    look_s: float = 0.5
    at_least_every_s: float = 60.0
    longest_s: float = 30.0


@dataclass(frozen=True, kw_only=True)
class FollowSummary:
    """The end of a follower.

    :param event_id: the source's event that the target shows.
    :param cycles: the number of published cycles.
    """

    database: str
    event_id: int
    cycles: int


def follow(
    source: MetastorePool,
    target: MetastorePool,
    policy: ReplicationPolicy,
    *,
    run_copy: CopyRunner,
    stop: StopRequest | None = None,
    pauses: FollowPauses | None = None,
    for_s: float | None = None,
    cycles: int | None = None,
    threads: int = 8,
    observer: Observer = LOGGED,
) -> FollowSummary:
    """Run cycles until a stop is requested; the first one is a bootstrap if the target is not published.

    Errors that another try can mend are reported to the observer, and tried again without an end.

    :param source: connections to the source.
    :param target: connections to the target.
    :param run_copy: carries out a copy plan (URI of the plan, URI of the directory for outcomes).
    :param stop: ends the follower before the next step of its cycle.
    :param for_s: seconds after which no further cycle begins.
    :param cycles: the number of published cycles after which the follower ends.
    :param threads: number of tables dumped in parallel.
    :param observer: receives the events of progress.
    :raises GroupMembershipError: the policy, or its target, belongs to a consistency group.
    :raises HiveFederationError: an error that no further cycle can mend, as
        :func:`~.cycle.dump_next_increment` and :func:`~.cycle.load_dump`.
    """
    refuse_alone(policy, "follow its source")
    follower = _Follower(
        source,
        target,
        policy,
        run_copy=run_copy,
        stop=stop or StopRequest(),
        pauses=pauses or FollowPauses(),
        threads=threads,
        observer=observer,
    )
    return follower.run(None if for_s is None else time.monotonic() + for_s, cycles)


def _is_mended_by_a_cycle(error: HiveFederationError) -> bool:
    if isinstance(error, _MENDED_BY_A_START):
        return False
    return error.retryable or isinstance(error, _MENDED_BY_A_CYCLE)


class _StopRequestedError(Exception):
    """Ends a cycle because a stop was requested."""


class _Follower:
    def __init__(
        self,
        source: MetastorePool,
        target: MetastorePool,
        policy: ReplicationPolicy,
        *,
        run_copy: CopyRunner,
        stop: StopRequest,
        pauses: FollowPauses,
        threads: int,
        observer: Observer,
    ) -> None:
        self._source = source
        self._target = target
        self._policy = policy
        self._run_copy = run_copy
        self._stop = stop
        self._pauses = pauses
        self._threads = threads
        self._observer = observer
        self._watch: SourceWatch | None = None
        #: The event that the target shows.
        self._shown_id = 0
        #: The events that wait for a cycle.
        self._pending: deque[NoticedEvent] = deque()
        self._cycle_due_s = 0.0
        self._cycles = self._failures = 0
        self._published: Published | None = None

    def run(self, deadline_s: float | None, cycles: int | None) -> FollowSummary:
        database = self._policy.target_database
        while cycles is None or self._cycles < cycles:
            pause_s = self._turn()
            left_s = float("inf") if deadline_s is None else deadline_s - time.monotonic()
            if left_s <= 0 or self._stop.wait(min(pause_s, left_s)):
                break
        self._observer(FollowEnded(database=database, event_id=self._shown_id, cycles=self._cycles))
        return FollowSummary(database=database, event_id=self._shown_id, cycles=self._cycles)

    def _turn(self) -> float:
        """Look at the source once, and run a cycle if it is time; return the seconds until the next look."""
        try:
            if self._watch is None:
                self._watch = self._begin()
            if len(self._pending) < _PENDING:
                self._look(self._watch)
            before_id = self._shown_id
            if self._pending or time.monotonic() >= self._cycle_due_s:
                self._cycle()
        except _StopRequestedError:
            return 0.0
        except HiveFederationError as error:
            return self._pause_after(error)
        self._failures = 0
        # If the cycle did not reach a known event, the source is about to show the event's transaction.
        return 0.0 if self._pending and self._shown_id > before_id else self._pauses.look_s

    def _pause_after(self, error: HiveFederationError) -> float:
        """Return the seconds until the next try.

        :raises HiveFederationError: the error, if no other try can mend it.
        """
        self._failures += 1
        stops = self._stop.made
        if not (stops or _is_mended_by_a_cycle(error)):
            raise error
        # A power with a large exponent is no float.
        grown_s = self._pauses.look_s * 2 ** min(self._failures, 20)
        pause_s = 0.0 if stops else min(grown_s, self._pauses.longest_s)
        self._observer(
            CycleFailed(
                database=self._policy.target_database,
                error=str(error),
                failures=self._failures,
                pause_s=pause_s,
            )
        )
        return pause_s

    def _begin(self) -> SourceWatch:
        """Bootstrap the target unless it is published; return the watch of later events."""
        with self._target.client() as client:
            published = is_published(client, self._policy)
        if not published:
            self._bootstrap()
        with self._target.client() as client:
            watch = SourceWatch.from_target(client, self._policy)
        self._shown_id = watch.seen_id
        self._observer(FollowStarted(database=self._policy.target_database, event_id=self._shown_id))
        return watch

    def _look(self, watch: SourceWatch) -> None:
        """Note the source's new events that call for a cycle."""
        with self._source.client() as client:
            noticed = watch.look(client, at_most=_PENDING - len(self._pending))
        self._pending += [event for event in noticed if event.event_id > self._shown_id]
        if noticed:
            self._observer(self._lag())

    def _cycle(self) -> None:
        """Run an increment."""
        began_s, self._published = time.monotonic(), None
        dumped = dump_next_increment(
            self._source, self._target, self._policy, threads=self._threads, observer=self._observe
        )
        if not dumped.idle:
            self._load(dumped.dump)
        elif dumped.event_id > self._shown_id:
            load_idle(self._target, self._policy, dumped.event_id, observer=self._observer)
        lag_s = self._reach(dumped.event_id)
        if not dumped.idle:
            self._report(
                INCREMENT,
                time.monotonic() - began_s,
                lag_s,
                events=dumped.events,
                transactions=dumped.transactions,
                tables=dumped.tables,
            )

    def _bootstrap(self) -> None:
        began_s, self._published = time.monotonic(), None
        with self._source.client() as client:
            start = begin_drain(client, self._policy.source_database)
            drain(client, start, timeout_s=self._policy.open_txn_timeout_s, observer=self._observe)
        dumped = dump_bootstrap(
            self._source, self._policy, start, threads=self._threads, observer=self._observe
        )
        self._load(dumped.dump)
        self._report(BOOTSTRAP, time.monotonic() - began_s, 0.0, tables=dumped.tables)

    def _load(self, dump: str) -> None:
        load_dump(
            self._source,
            self._target,
            self._policy,
            dump,
            run_copy=self._run_copy,
            observer=self._observe,
        )

    def _observe(self, event: Event) -> None:
        if isinstance(event, Published):
            self._published = event
        self._observer(event)
        if isinstance(event, _STOPS) and self._stop.made and self._published is None:
            raise _StopRequestedError

    def _reach(self, event_id: int) -> float:
        """Note the event that the target shows; return the age in seconds of the oldest event up to it."""
        self._shown_id = max(self._shown_id, event_id)
        self._cycle_due_s = time.monotonic() + self._pauses.at_least_every_s
        now_s = oldest_s = time.time()
        while self._pending and self._pending[0].event_id <= event_id:
            oldest_s = min(oldest_s, self._pending.popleft().when_s)
        self._observer(self._lag())
        return now_s - oldest_s

    def _lag(self) -> LagSeen:
        now_s = time.time()
        oldest_s = min([now_s, *(event.when_s for event in self._pending)])
        return LagSeen(
            database=self._policy.target_database,
            events=len(self._pending),
            seconds=round(now_s - oldest_s, 1),
        )

    def _report(
        self,
        cycle: str,
        seconds: float,
        lag_s: float,
        *,
        events: int = 0,
        transactions: int = 0,
        tables: int = 0,
    ) -> None:
        self._cycles += 1
        published = self._published
        if published is None:
            raise RuntimeError("A cycle has ended that published nothing.")
        self._observer(
            CycleFollowed(
                database=self._policy.target_database,
                cycle=cycle,
                event_id=published.event_id,
                events=events,
                transactions=transactions,
                tables=tables,
                files=published.files,
                size_bytes=published.size_bytes,
                seconds=round(seconds, 3),
                lag_s=round(lag_s, 1),
            )
        )

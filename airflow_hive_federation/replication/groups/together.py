"""Holds the locks of all members of a group, and advances their loads together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hive_federation.progress.observers import Observer
from airflow_hive_federation.replication.group_policy import ReplicationGroup
from airflow_hive_federation.replication.groups.naming import member_named
from airflow_hive_federation.replication.load.stages import Stage, StagedLoad
from airflow_hive_federation.replication.load.summary import LoadSummary
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.cycle_lock import CycleLock

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastorePool

#: Each load holds a client while it pauses, and uses some more while it works.
_MORE_CLIENTS = 6


@dataclass(frozen=True, kw_only=True)
class HeldGroup:
    """The locks of a group's targets.

    :param target: connections to the target, whose writing calls need all locks.
    :param locks: the locks, by the names of the policies.
    """

    target: MetastorePool
    locks: dict[str, CycleLock]

    def check(self) -> None:
        """Make sure that this process still holds all locks.

        :raises CycleLostError: one is lost.
        """
        for lock in self.locks.values():
            lock.check()

    def prove(self) -> None:
        """Have the metastore confirm all locks.

        :raises CycleLostError: one is lost.
        """
        for lock in self.locks.values():
            lock.prove()


@contextmanager
def hold_group(target: MetastorePool, group: ReplicationGroup, observer: Observer) -> Iterator[HeldGroup]:
    """Hold the locks of all members of a group while the block runs.

    :param target: connections to the target.
    :raises CycleRunningError: a cycle works on one of the targets.
    """
    # Imported late, as modules that Airflow imports with a DAG file do.
    from airflow_hive_federation.metastore import MetastorePool

    with ExitStack() as held:
        # In one order for all, so that of two processes one gets all locks.
        locks = {
            policy.name: held.enter_context(CycleLock(target, policy, observer=observer))
            for policy in sorted(group.policies, key=lambda policy: policy.target_database)
        }
        size = len(group.policies) + max(target.size, _MORE_CLIENTS)
        pool = held.enter_context(MetastorePool(target.settings, size))

        def allow(method: str) -> None:
            for lock in locks.values():
                lock.allow(method)

        yield HeldGroup(target=pool.guarded(allow), locks=locks)


class MemberLoad:
    """The load of one member, which pauses at each stage.

    :param load: the load; ``None`` if the member is idle.
    :param dump: URI of its dump.
    """

    def __init__(self, policy: ReplicationPolicy, dump: str, load: StagedLoad | None) -> None:
        self.policy = policy
        self.dump = dump
        self.summary: LoadSummary | None = None
        self._load = load
        self._reached = 0

    @property
    def is_under_way(self) -> bool:
        """Return whether the load is neither idle nor published."""
        return self._load is not None and self.summary is None

    def advance(self, stage: Stage) -> None:
        """Run the load up to a stage, if it has not reached it.

        :raises HiveFederationError: the load failed; the message names the member.
        """
        with member_named(self.policy):
            while self._load and self.is_under_way and self._reached < stage.value:
                self._next(self._load)

    def finish(self) -> LoadSummary | None:
        """Publish the load, and return its summary; ``None`` if the member is idle."""
        with member_named(self.policy):
            while self._load and self.is_under_way:
                self._next(self._load)
        return self.summary

    def close(self) -> None:
        """Give up a load that has not ended."""
        if self._load:
            self._load.close()

    def _next(self, load: StagedLoad) -> None:
        try:
            self._reached = next(load).value
        except StopIteration as end:
            self.summary = end.value


@contextmanager
def closed_together(loads: Sequence[MemberLoad]) -> Iterator[None]:
    """Give up all loads that have not ended when the block ends, in whatever way."""
    with ExitStack() as closing:
        for load in loads:
            closing.callback(load.close)
        yield


def advance_all(loads: Iterable[MemberLoad], stage: Stage) -> None:
    """Run loads up to a stage, one after the other."""
    for load in loads:
        load.advance(stage)

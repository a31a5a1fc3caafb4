"""A follower of a source that copies without Spark, in this process or in one that is killed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence

from airflow_hive_federation.hooks.small_copies import small_here
from airflow_hive_federation.progress.events import Event, StepStarting
from airflow_hive_federation.progress.observers import Observer, unobserved
from airflow_hive_federation.replication.follow import FollowPauses, FollowSummary, follow
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.waiting import StopRequest
from tests.support.kills import KILLED, pool

#: Looks often, and runs no cycle without an event but the first one.
QUICK = FollowPauses(look_s=0.05, at_least_every_s=3600.0, longest_s=0.5)


def worker(argv: Sequence[str]) -> None:
    """The process that is killed: ``SOURCE TARGET POLICY STEP``."""
    source, target, policy, step = argv

    def exit_at(event: Event) -> None:
        if isinstance(event, StepStarting) and event.name == step:
            os._exit(KILLED)

    followed(source, target, ReplicationPolicy(**json.loads(policy)), observer=exit_at)


def followed(
    source: str,
    target: str,
    policy: ReplicationPolicy,
    *,
    cycles: int | None = None,
    stop: StopRequest | None = None,
    observer: Observer = unobserved,
) -> FollowSummary:
    """Follow from one metastore to another, by their URIs."""
    with pool(source) as source_pool, pool(target) as target_pool:
        return follow(
            source_pool,
            target_pool,
            policy,
            run_copy=small_here(policy, _no_spark),
            stop=stop,
            pauses=QUICK,
            cycles=cycles,
            observer=observer,
        )


def once(kind: type[Event], act: Callable[[], object]) -> Observer:
    """Return an observer that acts at the first event of a kind."""
    acts = iter([act])

    def observe(event: Event) -> None:
        if isinstance(event, kind) and (ready := next(acts, None)):
            ready()

    return observe


def _no_spark(plan: str, _outcomes: str) -> None:
    raise AssertionError(f"{plan} is not small.")

"""Bootstraps those members of a group whose targets are not published yet, at one cut.

The last event is noted once, then the transactions that are open in any of the databases. After these have
ended, the list of transactions is taken once, and all databases are dumped at it. No target is published
before all are loaded.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.replication.cycle import refuse_overtaken
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.cut import take_cut
from airflow_hive_federation.replication.dump.drain import DrainStart, begin_drain, drain
from airflow_hive_federation.replication.group_policy import ReplicationGroup
from airflow_hive_federation.replication.groups.load import CopyRunners, GroupLoadSummary
from airflow_hive_federation.replication.groups.membership import mark_members, read_members
from airflow_hive_federation.replication.groups.naming import member_named
from airflow_hive_federation.replication.groups.together import (
    MemberLoad,
    advance_all,
    closed_together,
    hold_group,
)
from airflow_hive_federation.replication.load.load import staged_load
from airflow_hive_federation.replication.load.stages import Stage
from airflow_hive_federation.transactions.lease import lease_of_a_dump

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastorePool


def bootstrap_group(
    source: MetastorePool,
    target: MetastorePool,
    group: ReplicationGroup,
    *,
    run_copy: CopyRunners,
    threads: int = 8,
    observer: Observer = LOGGED,
) -> GroupLoadSummary:
    """Bootstrap the members of a group that are not published; if all are, do nothing.

    :param source: connections to the source.
    :param target: connections to the target.
    :param run_copy: returns the function that carries out a policy's copy plan.
    :param threads: number of tables dumped in parallel.
    :param observer: receives the events of progress.
    :raises GroupMembershipError: the members are not those of the target.
    :raises CycleRunningError: another cycle works on a target.
    :raises HiveFederationError: as :func:`~.dump.bootstrap.dump_bootstrap` and
        :func:`~.load.load.load_into_target`; the message names the member.
    """
    with target.client() as client:
        states = read_members(client, group)
    new = [policy for policy in group.policies if not states[policy.name].published]
    if not new:
        event_id = min(state.last_id for state in states.values())
        return GroupLoadSummary(group=group.name, event_id=event_id, idle=True)
    unpublished = replace(group, policies=new)
    starts = _drained(source, unpublished, observer)
    dumps = {}
    with lease_of_a_dump(source, policy=f"group {group.name}") as lease:
        cut = take_cut(source, unpublished.source_databases, lease.txn_id)
        for policy in new:
            with member_named(policy):
                dumps[policy.name] = dump_bootstrap(
                    source, policy, starts[policy.name], cut=cut, threads=threads, observer=observer
                ).dump
        lease.check()
    return _load(source, target, group, dumps, run_copy=run_copy, observer=observer)


def _drained(source: MetastorePool, group: ReplicationGroup, observer: Observer) -> dict[str, DrainStart]:
    """Wait for the transactions that were open in any database of the group after one event."""
    starts: dict[str, DrainStart] = {}
    with source.client() as client:
        for policy in group.policies:
            starts[policy.name] = begin_drain(client, policy.source_database)
        # The first event comes before all lists of transactions; see begin_drain.
        first = starts[group.policies[0].name]
        together = replace(
            first,
            database=group.name,
            transactions=tuple(sorted({txn for start in starts.values() for txn in start.transactions})),
        )
        timeout_s = max(policy.open_txn_timeout_s for policy in group.policies)
        drain(client, together, timeout_s=timeout_s, observer=observer)
    return {
        name: replace(start, event_id=first.event_id, moment_ms=first.moment_ms)
        for name, start in starts.items()
    }


def _load(
    source: MetastorePool,
    target: MetastorePool,
    group: ReplicationGroup,
    dumps: dict[str, str],
    *,
    run_copy: CopyRunners,
    observer: Observer,
) -> GroupLoadSummary:
    unpublished = replace(group, policies=[policy for policy in group.policies if policy.name in dumps])
    with ExitStack() as stack:
        held = stack.enter_context(hold_group(target, unpublished, observer))
        client = stack.enter_context(held.target.client())
        loads = []
        for policy in unpublished.policies:
            dump = dumps[policy.name]
            with member_named(policy):
                refuse_overtaken(client, policy, dump, previous="")
            held.locks[policy.name].write_ticket(f"{dump}/load")
            staged = staged_load(
                source,
                held.target,
                policy,
                dump,
                run_copy=run_copy(policy),
                observer=observer,
                check=held.check,
            )
            loads.append(MemberLoad(policy, dump, staged))
        stack.enter_context(closed_together(loads))
        # Each load keeps the source's files from before the first copy until its own copy has ended.
        for stage in (Stage.SURVEYED, Stage.COPIED, Stage.PREPARED):
            advance_all(loads, stage)
        mark_members(client, group, list(dumps))
        summaries = [summary for load in loads if (summary := load.finish())]
        held.prove()
    return GroupLoadSummary(
        group=group.name, event_id=min(summary.event_id for summary in summaries), members=summaries
    )

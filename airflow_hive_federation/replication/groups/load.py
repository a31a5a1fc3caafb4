"""Loads the dumps of a group, so that readers of the target see its databases as of one moment.

The load has these steps, in this order; each can be killed and repeated:

1. The locks of all members are taken, and the members are checked.
2. Foreign writes to all targets are looked for.
3. All transactions of the group are opened on the target, and the files of all members are copied.
4. The definitions of all members get their new shape, and their write ids are allocated.
5. The transactions end in the source's order. One transaction of the target has the write ids of all
   databases that a transaction of the source wrote to, so its rows appear in all of them at once.
6. Each member drops objects, and writes statistics.
7. The members are published, in the order of the group's policies.

If a member fails before step 5, no reader of any member sees rows of the cycle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import DumpCorruptError, GroupMembershipError
from airflow_hive_federation.progress.events import DanglingAborted, UpToDate
from airflow_hive_federation.progress.kinds import Step
from airflow_hive_federation.progress.observers import LOGGED, Observer, Steps
from airflow_hive_federation.replication.cycle import refuse_overtaken
from airflow_hive_federation.replication.dump import retention
from airflow_hive_federation.replication.dump.pairs import Pairs
from airflow_hive_federation.replication.failover import SILENCE
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.group_lines import MEMBERS, GroupMember
from airflow_hive_federation.replication.format.kinds import TableWork
from airflow_hive_federation.replication.format.manifest import Manifest
from airflow_hive_federation.replication.group_policy import ReplicationGroup
from airflow_hive_federation.replication.groups.dump import GroupDump, read_group_dump
from airflow_hive_federation.replication.groups.ends import ends_of_group
from airflow_hive_federation.replication.groups.membership import joining, mark_members, read_members
from airflow_hive_federation.replication.groups.naming import member_named
from airflow_hive_federation.replication.groups.together import (
    HeldGroup,
    MemberLoad,
    advance_all,
    closed_together,
    hold_group,
)
from airflow_hive_federation.replication.load.load import staged_load
from airflow_hive_federation.replication.load.replay import OpenedTransactions, Replay
from airflow_hive_federation.replication.load.replayed_writes import ReplayedWrites
from airflow_hive_federation.replication.load.stages import Stage
from airflow_hive_federation.replication.load.summary import CopyRunner, LoadSummary
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.policy_changes import refuse_changed
from airflow_hive_federation.replication.replica.cycle_history import IDLE, CycleRecord
from airflow_hive_federation.replication.replica.database import publish_target
from airflow_hive_federation.replication.replica.position import loaded_dump, read_position
from airflow_hive_federation.replication.replica.table_index import TableIndex

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool

#: Returns the function that carries out the copy plans of a policy.
CopyRunners = Callable[[ReplicationPolicy], CopyRunner]


@dataclass(frozen=True, kw_only=True)
class GroupLoadSummary:
    """The numbers of a group's published loads. XCom-safe by :func:`dataclasses.asdict`.

    :param members: the loads of the members, in the order of publication.
    """

    group: str
    event_id: int
    members: Sequence[LoadSummary] = field(default_factory=tuple)
    idle: bool = False


def load_group(
    source: MetastorePool,
    target: MetastorePool,
    group: ReplicationGroup,
    dumped: GroupDump,
    *,
    run_copy: CopyRunners,
    source_lost: bool = False,
    given_up: Collection[str] = (),
    observer: Observer = LOGGED,
) -> GroupLoadSummary:
    """Load the dumps of a group; a load that was published already changes nothing.

    :param source: connections to the source.
    :param target: connections to the target.
    :param dumped: the result of :func:`~.dump.dump_group`.
    :param run_copy: returns the function that carries out a policy's copy plan.
    :param source_lost: the source does not answer; a load of which all files are copied needs it no more. It
        aborts no transaction: files of any member may wait for those that killed loads have opened.
    :param given_up: URIs of dumps of the members whose loads have begun since. No file of theirs may be
        in the way.
    :param observer: receives the events of progress.
    :raises CycleRunningError: another cycle works on a target, or has published since the dump.
    :raises CycleLostError: another process may have taken this one's place.
    :raises GroupMembershipError: the members are not those of the dump, or of the target.
    :raises DumpCorruptError: the record of the group's dump cannot be used.
    :raises HiveFederationError: as :func:`~.load.load.load_into_target`; the message names the member.
    """
    members, order = _members(group, dumped)
    manifests = {policy.name: _manifest(policy, members[policy.name]) for policy in group.policies}
    with hold_group(target, group, observer) as held, held.target.client() as client:
        _check_members(client, group, members, manifests)
        replay = Replay(client, group.policies[0])
        loads = [
            MemberLoad(policy, members[policy.name].dump, None)
            if source_lost and loaded_dump(client, policy) == members[policy.name].dump
            else _load_of(
                source,
                held,
                policy,
                members[policy.name],
                run_copy=run_copy,
                observer=observer,
                opened=replay.opened,
                given_up=given_up,
            )
            for policy in group.policies
        ]
        with closed_together(loads):
            advance_all(loads, Stage.SURVEYED)
            replay.open(_missing(client, group, members), Steps(observer, group.name, held.check))
            advance_all(loads, Stage.COPIED)
            advance_all(loads, Stage.ALLOCATED)
            if any(load.is_under_way for load in loads):
                step = Steps(observer, group.name, held.check)
                still_open = {txn for manifest in manifests.values() for txn in manifest.open_writes}
                _switch(replay, group, members, order=order, still_open=still_open, step=step)
                advance_all(loads, Stage.PREPARED)
                if not source_lost:
                    step(Step.SWEEP)
                    if dangling := replay.sweep(sorted(still_open)):
                        observer(DanglingAborted(database=group.name, transactions=tuple(dangling)))
            summaries = [
                _finished(client, load, source_lost=source_lost)
                or _publish_idle(client, load.policy, members[load.policy.name], observer)
                for load in loads
            ]
        held.prove()
        for load in loads:
            if not members[load.policy.name].idle:
                directory = DumpDirectory(load.dump, load.policy.storage_options)
                retention.forget_old_dumps(load.policy, directory, observer=observer)
    return GroupLoadSummary(group=group.name, event_id=dumped.event_id, members=summaries, idle=dumped.idle)


def _members(group: ReplicationGroup, dumped: GroupDump) -> tuple[dict[str, GroupMember], Sequence[int]]:
    """Return the members of a dump by the names of their policies, and the order of its transactions."""
    if dumped.idle:
        lines, order = list(dumped.members), []
        directory = None
    else:
        directory = DumpDirectory(dumped.dump, group.policies[0].storage_options)
        lines, ends = read_group_dump(directory)
        order = list(ends)
    members = {line.policy: line for line in lines}
    for policy in group.policies:
        line = members.get(policy.name)
        if line is None or line.group != group.name or len(members) != len(group.policies):
            raise GroupMembershipError(
                f"The dump {dumped.dump} of consistency group {group.name!r} has other policies "
                f"than the group: {', '.join(members)}.",
                remedy="Begin a new cycle; this dump is not needed any more.",
                group=group.name,
                policies=list(members),
            )
        if not line.idle and line.dump.rpartition("/")[0] != policy.directory:
            raise DumpCorruptError(
                f"The dump {dumped.dump} of consistency group {group.name!r} names {line.dump} as a dump of "
                f"policy {policy.name!r}, whose dumps lie in {policy.directory}.",
                remedy="If dump_root has changed, begin a new cycle. Else find out who wrote the record.",
                dump=dumped.dump,
                file=MEMBERS,
            )
    return members, order


def _manifest(policy: ReplicationPolicy, member: GroupMember) -> Manifest:
    with member_named(policy):
        manifest = DumpDirectory(member.dump, policy.storage_options).manifest()
        if not member.idle:
            refuse_changed(member.dump, manifest, policy)
        return manifest


def _check_members(
    client: MetastoreClient,
    group: ReplicationGroup,
    members: Mapping[str, GroupMember],
    manifests: Mapping[str, Manifest],
) -> None:
    """Check the targets under their locks, and record the group on those that join it."""
    states = read_members(client, group)
    for policy in group.policies:
        member = members[policy.name]
        with member_named(policy):
            previous = "" if member.idle else manifests[policy.name].previous
            refuse_overtaken(client, policy, member.dump, previous=previous)
    mark_members(client, group, joining(group.name, list(states.values())))


def _load_of(
    source: MetastorePool,
    held: HeldGroup,
    policy: ReplicationPolicy,
    member: GroupMember,
    *,
    run_copy: CopyRunners,
    observer: Observer,
    opened: OpenedTransactions,
    given_up: Collection[str],
) -> MemberLoad:
    if member.idle:
        return MemberLoad(policy, member.dump, None)
    held.locks[policy.name].write_ticket(f"{member.dump}/load")
    load = staged_load(
        source,
        held.target,
        policy,
        member.dump,
        run_copy=run_copy(policy),
        observer=observer,
        check=held.check,
        opened=opened,
        given_up=given_up,
    )
    return MemberLoad(policy, member.dump, load)


def _missing(
    client: MetastoreClient, group: ReplicationGroup, members: Mapping[str, GroupMember]
) -> dict[str, Pairs]:
    """Return the write ids that the tables of all members lack, so that one call opens their transactions."""
    missing: dict[str, Pairs] = {}
    for policy in group.policies:
        member = members[policy.name]
        if member.idle:
            continue
        directory = DumpDirectory(member.dump, policy.storage_options)
        manifest = directory.manifest()
        position = read_position(client, policy, also=manifest.repair_plan.tables)
        if position.dump == member.dump:
            continue  # It is published.
        replaced = {entry.name for entry in manifest.changed_tables if entry.work is TableWork.REPLACE}
        states = {name: state for name, state in position.tables.items() if name not in replaced}
        pairs = ReplayedWrites(directory).missing(manifest.changed_tables, states)
        missing |= {f"{policy.target_database}.{table}": writes for table, writes in pairs.items()}
    return missing


def _switch(
    replay: Replay,
    group: ReplicationGroup,
    members: Mapping[str, GroupMember],
    *,
    order: Sequence[int],
    still_open: Collection[int],
    step: Steps,
) -> None:
    """End the transactions of all members: with each, its rows appear in all databases at once."""
    dumps = [
        DumpDirectory(members[policy.name].dump, policy.storage_options)
        for policy in group.policies
        if not members[policy.name].idle
    ]
    ends = ((end.txn for end in dump.ends()) for dump in dumps)
    for txn in ends_of_group(order, ends, still_open):
        step(Step.END_TRANSACTION, txn)
        replay.end(txn)


def _finished(client: MetastoreClient, load: MemberLoad, *, source_lost: bool) -> LoadSummary | None:
    """Publish a load, and return its summary; ``None`` if only the event has to be recorded."""
    try:
        return load.finish()
    except SILENCE:
        # The source's read transaction could not be ended, after the target was published.
        if not source_lost or loaded_dump(client, load.policy) != load.dump:
            raise
        return None


def _publish_idle(
    client: MetastoreClient, policy: ReplicationPolicy, member: GroupMember, observer: Observer
) -> LoadSummary:
    with member_named(policy):
        position = read_position(client, policy)
        if position.last_id <= member.event_id:
            record = CycleRecord(kind=IDLE, event_id=member.event_id, ended_s=int(time.time()))
            publish_target(client, policy, record)
    event_id = max(member.event_id, position.last_id)
    observer(UpToDate(database=policy.target_database, event_id=event_id))
    return LoadSummary(
        dump=member.dump,
        database=policy.target_database,
        event_id=event_id,
        tables=0,
        partitions=0,
        functions=0,
        idle=True,
        skipped=TableIndex(DumpDirectory(member.dump, policy.storage_options)).skipped,
    )

"""Decides which policies may be members of a group, and records the members on their targets.

The target databases carry the group's name. Transactions of the source that are open at a cut are open on the
target, too, under a name of the group or of the policy. So a policy joins or leaves only while no transaction
of the source is open on its target, and no load has begun.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import GroupBusyError, GroupMembershipError, NoSuchObjectError
from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.unfinished import unfinished_loads
from airflow_hive_federation.replication.group_policy import ReplicationGroup
from airflow_hive_federation.replication.groups.naming import member_named
from airflow_hive_federation.replication.groups.together import hold_group
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.database import find_target, mark_group
from airflow_hive_federation.replication.replica.markers import TargetState

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool


@dataclass(frozen=True, kw_only=True)
class MemberState:
    """The state of a policy's target for its group.

    :param published: the target is published.
    :param marked: the group's name that the target carries; empty without one.
    :param last_id: last event of the target.
    :param open_transactions: transactions of the source that are open on the target.
    :param begun: dumps of a load that has begun and is not published.
    """

    policy: str
    published: bool
    marked: str = ""
    last_id: int = 0
    open_transactions: tuple[int, ...] = ()
    begun: tuple[str, ...] = ()


def refuse_strangers(group: str, databases: Collection[str], marked: Iterable[str]) -> None:
    """Refuse a group whose name is on databases of the target that are not among its members.

    :param databases: the target databases of the members.
    :param marked: the target databases that carry the group's name.
    :raises GroupMembershipError: a database carries the name, and no policy of the group has it.
    """
    if strangers := sorted(set(marked) - set(databases)):
        raise GroupMembershipError(
            f"Target databases {', '.join(strangers)} belong to consistency group {group!r}, and no policy "
            "of the group has them.",
            remedy="Put their policies back into the group. To take one out: hive-federation replicate leave "
            "GROUP_FILE POLICY, and then remove it from the group.",
            group=group,
            policies=[],
        )


def joining(group: str, states: Sequence[MemberState]) -> list[str]:
    """Return the policies that join the group with its next cycle.

    :raises GroupBusyError: one of them has open transactions, or a load that has begun.
    """
    names = [state.policy for state in states if state.published and not state.marked]
    for state in states:
        if state.policy in names:
            _refuse_busy(group, state, "join", "Run a cycle of the policy without the group")
    return names


def check_leaving(group: str, state: MemberState) -> bool:
    """Return whether a policy has to be taken out of the group, or is out of it already.

    :raises GroupBusyError: it has open transactions, or a load that has begun.
    """
    if not state.marked:
        return False
    if state.published:
        _refuse_busy(group, state, "leave", "Run a cycle of the group")
    return True


def _refuse_busy(group: str, state: MemberState, act: str, cycle: str) -> None:
    if not (state.open_transactions or state.begun):
        return
    numbers = ", ".join(map(str, state.open_transactions[:20]))
    reason = f"transactions {numbers} of the source are open" if numbers else "a load has begun"
    raise GroupBusyError(
        f"Policy {state.policy!r} cannot {act} consistency group {group!r} now: {reason}.",
        remedy=f"{cycle} once these transactions have ended, and try again."
        if numbers
        else f"{cycle} to its end, and try again.",
        group=group,
        policies=[state.policy],
        transactions=list(state.open_transactions),
    )


def read_members(client: MetastoreClient, group: ReplicationGroup) -> dict[str, MemberState]:
    """Read the states of a group's targets, by the names of the policies.

    :param client: client of the target.
    :raises GroupMembershipError: a target belongs to another group, or the group has a database that no
        policy has.
    :raises TargetNotOursError: a target belongs to another policy, or to nobody.
    """
    _refuse_strangers(client, group)
    states = {}
    for policy in group.policies:
        with member_named(policy):
            states[policy.name] = _read_member(client, policy)
    return states


def mark_members(client: MetastoreClient, group: ReplicationGroup, names: Sequence[str]) -> None:
    """Record the group on the targets of policies, which exist.

    :param client: client of the target.
    :param names: names of the policies.
    :raises GroupMembershipError: another group of the same name has recorded itself at the same time.
    """
    for policy in group.policies:
        if policy.name in names:
            mark_group(client, policy, group.name)
    if names:
        _refuse_strangers(client, group)


def refuse_part(
    client: MetastoreClient, group: ReplicationGroup, policies: Sequence[ReplicationPolicy]
) -> None:
    """Refuse to abort the transactions of a group if they are not those of these policies.

    :param client: client of the target.
    :param policies: policies of the group, whose targets are published.
    :raises GroupMembershipError: the group has a database that no policy has, or the target of a policy has
        not joined the group, so that its transactions have another name.
    """
    _refuse_strangers(client, group)
    marked = set(_marked(client, group.name))
    if outside := [policy for policy in policies if policy.target_database not in marked]:
        raise GroupMembershipError(
            f"Target databases {', '.join(policy.target_database for policy in outside)} have not joined "
            f"consistency group {group.name!r} yet.",
            remedy="Remove their policies from the group, and take over each of them by a policy file of its "
            "own.",
            group=group.name,
            policies=[policy.name for policy in outside],
        )


def leave_group(
    target: MetastorePool, group: ReplicationGroup, names: Sequence[str] = (), *, observer: Observer = LOGGED
) -> list[str]:
    """Take policies out of their group, and return their names; without names, take out all.

    The locks of all members are held meanwhile.

    A policy that has left, and has no ``group``, runs its cycles alone.

    :param target: connections to the target.
    :raises ConfigurationError: the group has no such policy.
    :raises GroupBusyError: a policy has open transactions, or a load that has begun.
    :raises CycleRunningError: a cycle works on a target.
    """
    leaving, left = group.named(names), []
    # With all locks, so that of members that leave at the same time one knows that it is the last.
    with hold_group(target, group, observer) as held, held.target.client() as client:
        for policy in leaving:
            if check_leaving(group.name, _read_member(client, policy)):
                if set(_marked(client, group.name)) == {policy.target_database}:
                    # A load that was killed early may have left transactions that no other cycle will end.
                    Replay(client, policy).sweep(())
                mark_group(client, policy, "")
                left.append(policy.name)
        held.prove()
    return left


def _refuse_strangers(client: MetastoreClient, group: ReplicationGroup) -> None:
    databases = [policy.target_database for policy in group.policies]
    refuse_strangers(group.name, databases, _marked(client, group.name))


def _marked(client: MetastoreClient, group: str) -> Iterable[str]:
    for name in client.list_databases():
        try:
            parameters = client.get_database(name).parameters or {}
        except NoSuchObjectError:
            continue  # It was dropped meanwhile.
        if parameters.get(markers.GROUP) == group:
            yield name


def _read_member(client: MetastoreClient, policy: ReplicationPolicy) -> MemberState:
    state = find_target(client, policy)
    if state.state is TargetState.ABSENT:
        return MemberState(policy=policy.name, published=False)
    parameters = client.get_database(policy.target_database).parameters or {}
    marked = parameters.get(markers.GROUP, "")
    if state.state is not TargetState.LOADED or state.last_id is None:
        return MemberState(policy=policy.name, published=False, marked=marked)
    dump = parameters[markers.CHECKPOINT]
    return MemberState(
        policy=policy.name,
        published=True,
        marked=marked,
        last_id=state.last_id,
        open_transactions=tuple(sorted(DumpDirectory(dump, policy.storage_options).manifest().open_writes)),
        begun=tuple(begun.uri for begun in unfinished_loads(policy, dump)),
    )

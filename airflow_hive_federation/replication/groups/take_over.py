"""Takes over the targets of a group whose source is lost, at one moment of the source.

A load of the group ends no transaction before all files of all members are copied. So either the load can be
finished for all members without the source, or no transaction of it has become visible in any database. An
earlier load that can be finished is finished in its place. In all cases, the databases show all transactions
of the source up to one of them, and each in all databases.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.progress.kinds import Step
from airflow_hive_federation.progress.observers import LOGGED, Observer, Steps
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.group_lines import MEMBERS, GroupMember
from airflow_hive_federation.replication.format.unfinished import (
    begun_since,
    unfinished_loads,
    unsettled_loads,
)
from airflow_hive_federation.replication.group_policy import ReplicationGroup
from airflow_hive_federation.replication.groups.dump import GroupDump, read_group_dump
from airflow_hive_federation.replication.groups.load import load_group
from airflow_hive_federation.replication.groups.membership import refuse_part
from airflow_hive_federation.replication.groups.together import hold_group
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.overtaken_loads import OvertakenError
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.position import loaded_dump
from airflow_hive_federation.replication.take_over import (
    TakeOverReport,
    is_copied,
    make_way,
    note_not_ended,
    nothing_more_to_copy,
    refuse_living,
    release,
    remove_unfinished,
)

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool

log = logging.getLogger(__name__)


def take_over_group(
    source: MetastorePool, target: MetastorePool, group: ReplicationGroup, *, observer: Observer = LOGGED
) -> list[TakeOverReport]:
    """Let go of the targets of a group whose source does not answer, in the order of the policies.

    If a run is killed at any point, the next run continues it.

    :param source: connections to the source, which must not answer.
    :param target: connections to the target.
    :param observer: receives the events of progress.
    :return: the reports of the targets that were let go now. A database that is no target of any policy
        counts as let go before; a warning names it.
    :raises FailoverError: the source answers.
    :raises TargetNotOursError: a target database does not exist, was never published, or belongs to another
        policy.
    :raises GroupMembershipError: the group has a database that no policy has, or a target has not joined it.
    :raises CycleRunningError: a cycle works on a target.
    """
    for policy in group.policies:
        refuse_living(source, policy)
    with target.client() as client:
        kept = [policy for policy in group.policies if not _is_let_go(client, policy)]
        for policy in group.policies:
            if policy not in kept:
                log.warning(
                    "Database %s is left as it is: it is no target of a policy (any more)",
                    policy.target_database,
                )
        loaded = {policy.name: loaded_dump(client, policy) for policy in kept}
        # Files of other databases wait for the group's transactions, too.
        refuse_part(client, group, kept)
        whole = len(kept) == len(group.policies)
        dumped = _copied_dump(group, loaded) if whole else None
    removed = dict.fromkeys([policy.name for policy in kept], 0)
    if dumped is not None:
        unfinished = {policy.name: unsettled_loads(policy, loaded[policy.name]) for policy in kept}
        removed |= _end_load(source, target, group, dumped, unfinished=unfinished, observer=observer)
    reports = []
    with hold_group(target, group, observer) as held, held.target.client() as client:
        steps = {policy.name: Steps(observer, policy.target_database, held.check) for policy in kept}
        for policy in kept:
            left = unsettled_loads(policy, loaded_dump(client, policy))
            removed[policy.name] += remove_unfinished(
                client, policy, left, check=held.check, step=steps[policy.name]
            )
        # The members share their transactions: no file of any member may wait for them any more.
        for policy in kept[:1]:
            steps[policy.name](Step.ABORT)
            Replay(client, policy).sweep(())
        for policy in kept:
            report = release(source, client, policy, removed=removed[policy.name], step=steps[policy.name])
            observer(report.event)
            reports.append(report)
        held.prove()
    return reports


def _end_load(
    source: MetastorePool,
    target: MetastorePool,
    group: ReplicationGroup,
    dumped: GroupDump,
    *,
    unfinished: Mapping[str, Sequence[DumpDirectory]],
    observer: Observer,
) -> dict[str, int]:
    """End a load of the group whose files are all copied.

    :param unfinished: the unfinished loads of each policy.
    :return: for each policy, the number of files of later loads that were in the way and are removed.
    """
    options = {policy.name: policy.storage_options for policy in group.policies}
    dumps = {
        member.policy: DumpDirectory(member.dump, options[member.policy])
        for member in dumped.members
        if not member.idle
    }
    later: dict[str, list[str]] = {}
    for name, dump in dumps.items():
        if begun := begun_since(dump, (other.uri for other in unfinished[name])):
            later[name] = begun
    removed = {}
    if later:
        with hold_group(target, group, observer) as held, held.target.client() as client:
            for policy in group.policies:
                if policy.name in later:
                    removed[policy.name] = make_way(
                        client,
                        policy,
                        dumps[policy.name],
                        unfinished[policy.name],
                        check=held.check,
                        step=Steps(observer, policy.target_database, held.check),
                    )
    try:
        copiers = {
            policy.name: nothing_more_to_copy(target, policy, dumps[policy.name], later.get(policy.name, ()))
            for policy in group.policies
            if policy.name in dumps
        }
        load_group(
            source,
            target,
            group,
            dumped,
            run_copy=lambda policy: copiers[policy.name],
            source_lost=True,
            given_up=[uri for uris in later.values() for uri in uris],
            observer=observer,
        )
    except OvertakenError as error:
        note_not_ended(dumped.dump, error)
    return removed


def _is_let_go(client: MetastoreClient, policy: ReplicationPolicy) -> bool:
    try:
        parameters = client.get_database(policy.target_database).parameters or {}
    except NoSuchObjectError:
        return False  # The take-over reports it.
    return markers.POLICY not in parameters


def _copied_dump(group: ReplicationGroup, loaded: Mapping[str, str]) -> GroupDump | None:
    """Return the latest dump of the group whose files are all copied, and which is not published by all.

    :param loaded: for each policy, the dump from which its target was last loaded.
    """
    begun = {
        policy.name: {dump.uri: dump for dump in unfinished_loads(policy, loaded[policy.name])}
        for policy in group.policies
    }
    copied = []
    for record, members in _records(group, loaded, begun):
        changed = [member for member in members if not member.idle]
        waiting = [member for member in changed if member.dump != loaded.get(member.policy)]
        if waiting and all(
            member.dump in begun[member.policy] and is_copied(begun[member.policy][member.dump])
            for member in waiting
        ):
            event_id = min(member.event_id for member in members)
            copied.append(GroupDump(group=group.name, dump=record, event_id=event_id, members=members))
    # A cycle in which nothing has happened at the source may repeat the event of the one before.
    return max(copied, key=lambda dump: (dump.event_id, _begun_before(group, dump)), default=None)


def _begun_before(group: ReplicationGroup, dumped: GroupDump) -> int:
    """Return the number of loads that had begun when a dump was made."""
    options = {policy.name: policy.storage_options for policy in group.policies}
    return sum(
        len(DumpDirectory(member.dump, options[member.policy]).manifest().begun)
        for member in dumped.members
        if not member.idle
    )


def _records(
    group: ReplicationGroup,
    loaded: Mapping[str, str],
    begun: Mapping[str, Mapping[str, DumpDirectory]],
) -> Iterator[tuple[str, Sequence[GroupMember]]]:
    """Yield the records of the group's dumps that lie beside dumps of its members."""
    for policy in group.policies:
        for uri in {loaded[policy.name], *begun[policy.name]}:
            directory = DumpDirectory(uri, policy.storage_options)
            if directory.exists(MEMBERS):
                members, _ = read_group_dump(directory)
                if {member.policy for member in members} == loaded.keys():
                    yield uri, members

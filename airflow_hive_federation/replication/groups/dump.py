"""Dumps the increments of a group at one cut.

One read transaction keeps the history of the tables of all members. Under it, the list of transactions and
the last event are read once, and each member is dumped at them. A record beside the first dump names the
dumps of all members, and holds the order in which their transactions ended on the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import ConfigurationError, GroupMembershipError
from airflow_hive_federation.model import json_values
from airflow_hive_federation.model.event_messages import read_event
from airflow_hive_federation.model.json_values import Fields, count, flag, list_of, text
from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.replication.cycle import unchanged_position
from airflow_hive_federation.replication.dump.cut import take_cut
from airflow_hive_federation.replication.dump.increment import dump_increment
from airflow_hive_federation.replication.dump.increment_summary import IncrementSummary
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.group_lines import ENDS, MEMBERS, GroupMember
from airflow_hive_federation.replication.group_policy import ReplicationGroup
from airflow_hive_federation.replication.groups.ends import ended_in
from airflow_hive_federation.replication.groups.membership import joining, read_members
from airflow_hive_federation.replication.groups.naming import member_named
from airflow_hive_federation.transactions.lease import end_lease, lease_of_a_dump

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastorePool


@dataclass(frozen=True, kw_only=True)
class GroupDump:
    """The dumps of a group's members at one cut. XCom-safe by :func:`dataclasses.asdict`.

    :param dump: URI of the dump beside which the record of the group lies; empty if all members are idle.
    :param event_id: last event of the cut.
    :param members: the members' parts, in the order of publication.
    :param transactions: number of transactions that the load will end.
    :param idle: no member has a change; the load only records the event.
    """

    group: str
    dump: str
    event_id: int
    members: Sequence[GroupMember]
    transactions: int = 0
    idle: bool = False

    @classmethod
    def from_json(cls, value: object) -> GroupDump:
        """Return a dump from the result of a task.

        :raises ConfigurationError: it is not such a result.
        """
        try:
            given = Fields(value)
            given.refuse_others(frozenset(field.name for field in fields(cls)))
            return cls(
                group=given.needed("group", text),
                dump=given.needed("dump", text),
                event_id=given.needed("event_id", count),
                members=list(given.needed("members", list_of(GroupMember.from_json))),
                transactions=given.optional("transactions", count, default=0),
                idle=given.optional("idle", flag, default=False),
            )
        except ValueError as error:
            raise ConfigurationError(
                f"{value!r} is not the result of a group's dump: {error}.",
                remedy="Give the result of a GroupDumpOperator.",
            ) from error


def dump_group(
    source: MetastorePool,
    target: MetastorePool,
    group: ReplicationGroup,
    *,
    threads: int = 8,
    observer: Observer = LOGGED,
) -> GroupDump:
    """Dump the increments of all members of a group at one cut.

    :param source: connections to the source.
    :param target: connections to the target.
    :param threads: number of tables dumped in parallel.
    :param observer: receives the events of progress.
    :raises GroupMembershipError: a target is not published yet, or the members are not those of the target.
    :raises GroupBusyError: a policy cannot join the group now.
    :raises TargetChangedError: somebody else wrote to a target.
    :raises HiveFederationError: as :func:`~.dump.increment.dump_increment`; the message names the member.
    """
    with target.client() as client:
        states = read_members(client, group)
    if new := [name for name, state in states.items() if not state.published]:
        raise GroupMembershipError(
            f"The targets of {', '.join(new)} of consistency group {group.name!r} are not published.",
            remedy="Bootstrap the group first.",
            group=group.name,
            policies=new,
        )
    joining(group.name, list(states.values()))
    # Before the cut: a target that another cycle publishes meanwhile is not taken for one beyond its source.
    positions = {}
    for policy in group.policies:
        with member_named(policy):
            positions[policy.name] = unchanged_position(target, policy)
    with lease_of_a_dump(source, policy=f"group {group.name}") as lease:
        cut = take_cut(source, group.source_databases, lease.txn_id)
        dumped = {}
        for policy in group.policies:
            with member_named(policy):
                dumped[policy.name] = dump_increment(
                    source, policy, positions[policy.name], cut=cut, threads=threads, observer=observer
                )
        members = [_member(group.name, name, summary) for name, summary in dumped.items()]
        changed = [
            DumpDirectory(dumped[policy.name].dump, policy.storage_options)
            for policy in group.policies
            if not dumped[policy.name].idle
        ]
        count = 0
        if changed:
            from_id = min(summary.from_id for summary in dumped.values())
            count = _write_record(source, changed, members, from_id, cut.event_id)
        lease.check()
    if not changed:
        end_lease(source, lease.txn_id)
    return GroupDump(
        group=group.name,
        dump=changed[0].uri if changed else "",
        event_id=min(member.event_id for member in members),
        members=members,
        transactions=count,
        idle=not changed,
    )


def read_group_dump(directory: DumpDirectory) -> tuple[list[GroupMember], Iterator[int]]:
    """Return the members of a group's dump, and its transactions in the source's order.

    :param directory: the dump beside which the record lies.
    :raises DumpCorruptError: the record cannot be read.
    """
    members = list(directory.read_report(MEMBERS, GroupMember.from_json))
    return members, directory.read_report(ENDS, json_values.count)


def _write_record(
    source: MetastorePool,
    changed: Sequence[DumpDirectory],
    members: Sequence[GroupMember],
    from_id: int,
    up_to: int,
) -> int:
    concerned = {end.txn for dump in changed for end in dump.ends()}
    with source.client() as client:
        raw = client.iter_notification_events(from_id, up_to=up_to) if concerned else ()
        events = map(read_event, raw)
        changed[0].add_lines(ENDS, ended_in(events, concerned))
    changed[0].add_lines(MEMBERS, (member.to_json() for member in members))
    return len(concerned)


def _member(group: str, policy: str, summary: IncrementSummary) -> GroupMember:
    return GroupMember(
        group=group, policy=policy, dump=summary.dump, event_id=summary.event_id, idle=summary.idle
    )

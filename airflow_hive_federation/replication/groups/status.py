"""Reports the state of a group, its next cycle, and the verification of its members."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.progress.observers import LOGGED, LOGGED_QUIETLY, Observer
from airflow_hive_federation.replication.cycle_plan import CyclePlan, plan_cycle
from airflow_hive_federation.replication.dump.cut import take_cut
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.group_lines import MEMBERS
from airflow_hive_federation.replication.group_policy import ReplicationGroup
from airflow_hive_federation.replication.groups.membership import joining, read_members
from airflow_hive_federation.replication.groups.naming import member_named
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.cycle_history import (
    BOOTSTRAP,
    IDLE,
    CycleRecord,
    read_cycles,
)
from airflow_hive_federation.replication.replica.position import loaded_dump
from airflow_hive_federation.replication.status import ReplicationStatus, read_status
from airflow_hive_federation.replication.verify.report import (
    VerificationReport,
    VerificationResult,
)
from airflow_hive_federation.replication.verify.unverified import tables_to_compare
from airflow_hive_federation.replication.verify.verify import VerifyRunner, verify_replica
from airflow_hive_federation.transactions.lease import end_lease, lease_of_a_dump

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastorePool


@dataclass(frozen=True, kw_only=True)
class GroupStatus:
    """The status of a group's targets.

    :param one_moment: all targets are of one moment of the source. False between a bootstrap and the first
        increment after it, and if a load of the group has published some of its members only.
    :param event_id: the last event that all targets have; ``None`` if a target is not published.
    :param members: the statuses of the targets, in the order of publication.
    """

    group: str
    one_moment: bool
    event_id: int | None
    members: Sequence[ReplicationStatus] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "members": [member.to_json() for member in self.members]}


@dataclass(frozen=True, kw_only=True)
class GroupPlan:
    """The changes that the next cycle of a group would make, at one cut.

    :param members: the plans of the targets, in the order of publication. If some targets are not published,
        the cycle bootstraps these first, and continues with an increment of all.
    """

    group: str
    members: Sequence[CyclePlan] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        return {"group": self.group, "members": [member.to_json() for member in self.members]}


@dataclass(frozen=True, kw_only=True)
class GroupVerification:
    """The verifications of a group's targets. XCom-safe by :func:`~.model.results.result_json`.

    :param members: the results, in the order of publication.
    """

    group: str
    members: Sequence[VerificationResult] = field(default_factory=tuple)


def read_group_status(source: MetastorePool, target: MetastorePool, group: ReplicationGroup) -> GroupStatus:
    """Read the status of a group from both metastores.

    :param source: connections to the source, which need not answer.
    :param target: connections to the target.
    :raises GroupMembershipError: the members are not those of the target.
    :raises HiveFederationError: as :func:`~.status.read_status`; the message names the member.
    """
    with target.client() as client:
        read_members(client, group)
    statuses = []
    for policy in group.policies:
        with member_named(policy):
            statuses.append(read_status(source, target, policy))
    return group_status(group.name, statuses)


def group_status(group: str, statuses: Sequence[ReplicationStatus]) -> GroupStatus:
    """Judge whether the targets of a group are of one moment. Pure."""
    events = [status.event_id for status in statuses]
    published = [event_id for event_id in events if event_id is not None]
    complete = len(published) == len(events)
    only_bootstrapped = any(status.cycles and status.cycles[-1].kind == BOOTSTRAP for status in statuses)
    return GroupStatus(
        group=group,
        one_moment=complete and len(set(published)) == 1 and not only_bootstrapped,
        event_id=min(published) if complete else None,
        members=statuses,
    )


def plan_group(
    source: MetastorePool,
    target: MetastorePool,
    group: ReplicationGroup,
    *,
    observer: Observer = LOGGED_QUIETLY,
) -> GroupPlan:
    """Plan the next cycle of a group, and change neither side.

    :param source: connections to the source.
    :param target: connections to the target.
    :raises GroupMembershipError: the members are not those of the target.
    :raises HiveFederationError: the error with which the cycle would fail; the message names the member.
    """
    with target.client() as client:
        states = read_members(client, group)
    joining(group.name, list(states.values()))
    plans = []
    with lease_of_a_dump(source, policy=f"group {group.name}") as lease:
        cut = take_cut(source, group.source_databases, lease.txn_id)
        for policy in group.policies:
            with member_named(policy):
                plans.append(plan_cycle(source, target, policy, cut=cut, observer=observer))
    end_lease(source, lease.txn_id)
    return GroupPlan(group=group.name, members=plans)


def verify_group(
    source: MetastorePool,
    target: MetastorePool,
    group: ReplicationGroup,
    *,
    run_verify: VerifyRunner,
    whole: bool = True,
    row_digests: bool = False,
    observer: Observer = LOGGED,
) -> list[VerificationReport]:
    """Compare the targets of a group with the dumps from which they were loaded last.

    :param source: connections to the source.
    :param target: connections to the target.
    :param run_verify: reads files by Spark, see :func:`~.verify.verify_replica`.
    :param whole: compare files and rows of all tables, not only of those that have changed since a
        verification last found them equal.
    :param row_digests: compare digests of rows, not only their number.
    :raises HiveFederationError: as :func:`~.verify.verify_replica`; the message names the member.
    """
    reports = []
    for policy in group.policies:
        with member_named(policy):
            with target.client() as client:
                dump = loaded_dump(client, policy)
                cycles = read_cycles(client.get_database(policy.target_database).parameters)
            report = verify_replica(
                target,
                policy,
                dump,
                run_verify=run_verify,
                source=source,
                tables=None if whole else _tables_to_compare(cycles, dump, policy),
                row_digests=row_digests,
                observer=observer,
            )
            reports.append(report)
    return reports


def recorded_dump(target: MetastorePool, group: ReplicationGroup) -> str:
    """Return the dump with the record of the group's last published cycle, among the members' last dumps.

    Bootstraps have no record: without any, the first member's dump is returned.

    :param target: connections to the target.
    :raises HiveFederationError: as :func:`~.position.loaded_dump`; the message names the member.
    """
    dumps = []
    for policy in group.policies:
        with member_named(policy), target.client() as client:
            dumps.append(DumpDirectory(loaded_dump(client, policy), policy.storage_options))
    recorded = [dump for dump in dumps if dump.exists(MEMBERS)]
    # A member that did not change has an older dump, perhaps with the record of an older cycle.
    return max(recorded, key=lambda dump: dump.manifest().event_id, default=dumps[0]).uri


def _tables_to_compare(
    cycles: Sequence[CycleRecord], dump: str, policy: ReplicationPolicy
) -> Collection[str] | None:
    """Return the tables whose files and rows are compared; ``None`` stands for all."""
    # Without records, the cycles that changed the target are unknown.
    if not cycles:
        return None
    return tables_to_compare(dump, policy.storage_options, idle=cycles[-1].kind == IDLE)

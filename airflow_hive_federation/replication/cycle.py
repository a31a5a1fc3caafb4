"""Runs one cycle of a replication: a bootstrap if the target is not published yet, otherwise an increment."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import CycleRunningError
from airflow_hive_federation.progress.events import UpToDate
from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.replication.dump import retention
from airflow_hive_federation.replication.dump.increment import dump_increment
from airflow_hive_federation.replication.dump.increment_summary import IncrementSummary
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.manifest import RepairPlan
from airflow_hive_federation.replication.group_policy import refuse_alone
from airflow_hive_federation.replication.load.load import load_into_target
from airflow_hive_federation.replication.load.summary import CopyRunner, LoadSummary
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.policy_changes import refuse_changed
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.cycle_history import IDLE, CycleRecord
from airflow_hive_federation.replication.replica.cycle_lock import CycleLock
from airflow_hive_federation.replication.replica.database import find_target, publish_target
from airflow_hive_federation.replication.replica.markers import TargetState
from airflow_hive_federation.replication.replica.position import TargetPosition, read_position
from airflow_hive_federation.replication.replica.table_index import TableIndex

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool


def is_published(client: MetastoreClient, policy: ReplicationPolicy) -> bool:
    """Return whether the target is published, so that the next cycle is an increment and not a bootstrap.

    :param client: client of the target.
    :raises TargetNotOursError: the target database belongs to another policy, or to nobody.
    :raises GroupMembershipError: the policy, or its target, belongs to a consistency group.
    """
    refuse_alone(policy, "run a cycle")
    return find_target(client, policy).state is TargetState.LOADED


def dump_next_increment(
    source: MetastorePool,
    target: MetastorePool,
    policy: ReplicationPolicy,
    *,
    repair_plan: RepairPlan | None = None,
    threads: int = 8,
    observer: Observer = LOGGED,
) -> IncrementSummary:
    """Dump the increment that continues from the target's position.

    :param source: connections to the source.
    :param target: connections to the target.
    :param repair_plan: the parts of the target to repair; the increment then also drops tables that this
        policy did not make, if they are among these.
    :raises TargetChangedError: somebody else wrote to the target.
    :raises HiveFederationError: as :func:`~.replica.position.read_position` and
        :func:`~.dump.increment.dump_increment`.
    """
    position = unchanged_position(target, policy, repair_plan=repair_plan)
    return dump_increment(
        source, policy, position, repair_plan=repair_plan, threads=threads, observer=observer
    )


def unchanged_position(
    target: MetastorePool, policy: ReplicationPolicy, *, repair_plan: RepairPlan | None = None
) -> TargetPosition:
    """Read the position of a policy's target, from which an increment continues.

    :param target: connections to the target.
    :param repair_plan: the parts of the target that the increment repairs.
    :raises TargetChangedError: somebody else wrote to the target.
    :raises TargetNotOursError: the target database is not this policy's, or not published yet.
    """
    with target.client() as client:
        position = read_position(client, policy, also=repair_plan.tables if repair_plan else ())
    position.refuse_foreign_writes(policy, replaced=repair_plan.replaced if repair_plan else ())
    return position


def load_dump(
    source: MetastorePool,
    target: MetastorePool,
    policy: ReplicationPolicy,
    dump: str,
    *,
    run_copy: CopyRunner,
    observer: Observer = LOGGED,
) -> LoadSummary:
    """Load the dump of a bootstrap or an increment, while no other cycle works on the target.

    :param source: connections to the source.
    :param target: connections to the target.
    :param dump: URI of the dump.
    :param run_copy: carries out a copy plan (URI of the plan, URI of the directory for outcomes).
    :param observer: receives the events of progress.
    :raises CycleRunningError: another cycle works on the target, or has published since the dump.
    :raises CycleLostError: this process had sent no heartbeat for too long, and another may have taken its
        place.
    :raises ConfigurationError: the policy has changed the places of tables or functions since the dump was
        written.
    :raises DumpIncompleteError: the dump is not finished, or files that it lists are gone on the source.
    :raises GroupMembershipError: the policy belongs to a consistency group.
    :raises HiveFederationError: as :func:`~.load.load.load_into_target`.
    """
    refuse_alone(policy, "load")
    directory = DumpDirectory(dump, policy.storage_options)
    manifest = directory.manifest()
    refuse_changed(dump, manifest, policy)
    with CycleLock(target, policy, observer=observer) as lock:
        with target.client() as client:
            refuse_overtaken(client, policy, dump, previous=manifest.previous)
        lock.write_ticket(f"{dump}/load")
        summary = load_into_target(
            source, lock.target, policy, dump, run_copy=run_copy, observer=observer, check=lock.check
        )
        lock.prove()
        retention.forget_old_dumps(policy, directory, observer=observer)
    return summary


def load_idle(
    target: MetastorePool,
    policy: ReplicationPolicy,
    event_id: int,
    *,
    observer: Observer = LOGGED,
) -> LoadSummary:
    """Record on the target that it has reached an event, if no change up to that event concerned it.

    :param target: connections to the target.
    :raises CycleRunningError: another cycle works on the target.
    :raises GroupMembershipError: the policy belongs to a consistency group.
    """
    refuse_alone(policy, "load")
    with CycleLock(target, policy, observer=observer) as lock, lock.target.client() as client:
        position = read_position(client, policy)
        if position.last_id <= event_id:
            record = CycleRecord(kind=IDLE, event_id=event_id, ended_s=int(time.time()))
            publish_target(client, policy, record)
    observer(UpToDate(database=policy.target_database, event_id=max(event_id, position.last_id)))
    return LoadSummary(
        dump=position.dump,
        database=policy.target_database,
        event_id=max(event_id, position.last_id),
        tables=0,
        partitions=0,
        functions=0,
        idle=True,
        skipped=TableIndex(DumpDirectory(position.dump, policy.storage_options)).skipped,
    )


def refuse_overtaken(client: MetastoreClient, policy: ReplicationPolicy, dump: str, *, previous: str) -> None:
    """Refuse a dump that was made before another cycle published.

    :param previous: the dump from which an increment continues; empty for a bootstrap.
    """
    state = find_target(client, policy)
    if state.state is not TargetState.LOADED:
        return
    loaded = (client.get_database(policy.target_database).parameters or {}).get(markers.CHECKPOINT, "")
    if loaded not in {dump, previous}:
        raise CycleRunningError(
            f"Another cycle of policy {policy.name!r} has published event {state.last_id} on target database "
            f"{policy.target_database} since dump {dump} was made.",
            remedy="Begin a new cycle; this dump is not needed any more.",
            policy=policy.name,
            holder=loaded,
        )

"""Finds the bootstraps of a group's members that no task has announced.

Airflow keeps the announcements of tasks that succeed only. A task that is killed between two publications has
announced neither, and its next try finds one target published. So each dump of a bootstrap records the run
that has announced it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.group_policy import ReplicationGroup
from airflow_hive_federation.replication.load.summary import LoadSummary
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.position import loaded_dump
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.storage.filesystem import reading
from airflow_hive_federation.storage.listing import is_there
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.publishing import write_atomically

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastorePool

#: This file of a dump holds the key of the run that has announced its load.
ANNOUNCED = "load/announced"


def bootstraps_to_announce(
    target: MetastorePool, group: ReplicationGroup, loads: Sequence[LoadSummary], run: str
) -> list[LoadSummary]:
    """Return the bootstraps of a group that no other run has announced, in the order of the policies.

    :param target: connections to the target.
    :param loads: those of the present try.
    :param run: a text that all tries of a task's run share, and no other run has; empty outside Airflow,
        where nobody announces anything.
    """
    found = {load.database: load for load in loads}
    others = [policy for policy in group.policies if policy.target_database not in found]
    if others and run:
        with target.client() as client:
            dumps = [(policy, loaded_dump(client, policy)) for policy in others]
        for policy, uri in dumps:
            load = _bootstrap(policy, DumpDirectory(uri, policy.storage_options), group.name)
            if load is not None and _announced_by(uri, policy.storage_options) in {None, run}:
                found[policy.target_database] = load
    return [found[name] for policy in group.policies if (name := policy.target_database) in found]


def note_announced(group: ReplicationGroup, loads: Iterable[LoadSummary], run: str) -> None:
    """Record that a run has announced loads.

    :param run: the key of the run, as :func:`bootstraps_to_announce` takes it.
    """
    options = {policy.target_database: policy.storage_options for policy in group.policies}
    for load in loads if run else ():
        if not load.idle:
            write_atomically(f"{load.dump}/{ANNOUNCED}", [run.encode()], options=options[load.database])


def _bootstrap(policy: ReplicationPolicy, dump: DumpDirectory, group: str) -> LoadSummary | None:
    """Return the load of a dump; ``None`` if it is no bootstrap by a group of this name."""
    manifest = dump.manifest()
    if manifest.is_increment or manifest.policy.settings.get("group") != group:
        return None
    return LoadSummary(
        dump=dump.uri,
        database=policy.target_database,
        event_id=manifest.event_id,
        tables=len(manifest.changed_tables),
        partitions=sum(entry.partitions for entry in manifest.changed_tables),
        functions=0,
        skipped=TableIndex(dump).skipped,
    )


def _announced_by(dump: str, options: StorageOptions | None) -> str | None:
    uri = f"{dump}/{ANNOUNCED}"
    if not is_there(uri, options=options):
        return None
    with reading(uri, options) as file:
        return file.read().decode()

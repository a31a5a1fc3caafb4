"""Runs one cycle of a group: a bootstrap of the members that are not published, then an increment of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.replication.group_policy import ReplicationGroup
from airflow_hive_federation.replication.groups.bootstrap import bootstrap_group
from airflow_hive_federation.replication.groups.dump import dump_group
from airflow_hive_federation.replication.groups.load import CopyRunners, GroupLoadSummary, load_group

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastorePool


def run_group_cycle(
    source: MetastorePool,
    target: MetastorePool,
    group: ReplicationGroup,
    *,
    run_copy: CopyRunners,
    threads: int = 8,
    observer: Observer = LOGGED,
) -> GroupLoadSummary:
    """Bring all targets of a group to one later moment of the source.

    If a run is killed at any point, the next run ends in the same state.

    :param source: connections to the source.
    :param target: connections to the target.
    :param run_copy: returns the function that carries out a policy's copy plan.
    :param threads: number of tables dumped in parallel.
    :param observer: receives the events of progress.
    :raises HiveFederationError: as :func:`~.bootstrap.bootstrap_group`, :func:`~.dump.dump_group` and
        :func:`~.load.load_group`.
    """
    bootstrap_group(source, target, group, run_copy=run_copy, threads=threads, observer=observer)
    dumped = dump_group(source, target, group, threads=threads, observer=observer)
    return load_group(source, target, group, dumped, run_copy=run_copy, observer=observer)

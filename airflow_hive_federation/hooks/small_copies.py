"""Copies small plans in the process that loads them: the start of Spark takes longer than the copy."""

from __future__ import annotations

from collections.abc import Callable

from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.replication.load.summary import CopyRunner
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.spark.copy_files import copy_plan
from airflow_hive_federation.spark.workers import SMALL_BYTES, SMALL_FILES, ThisProcess
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.permissions import Preserve
from airflow_hive_federation.storage.plan_files import read_plan

#: A limit of the bandwidth makes a plan large that takes more seconds than this.
_SMALL_S = 10


def small_here(
    policy: ReplicationPolicy,
    otherwise: CopyRunner,
    *,
    at_most_bytes: int = SMALL_BYTES,
    at_most_files: int = SMALL_FILES,
    observer: Observer = LOGGED,
    check: Callable[[], None] = lambda: None,
) -> CopyRunner:
    """Return a copy runner that carries out small plans in this process, by the code of the Spark job.

    :param policy: bounds the copies as it bounds the job's.
    :param otherwise: carries out the other plans.
    :param at_most_bytes: the size up to which a plan is small.
    :param at_most_files: the number of files up to which it is.
    :param observer: receives the progress of the copies.
    :param check: raises an error if the copies must end.
    """

    if policy.bandwidth_bytes_per_s:
        at_most_bytes = min(at_most_bytes, policy.bandwidth_bytes_per_s * _SMALL_S)

    def run_copy(plan_uri: str, outcomes_uri: str) -> None:
        if not _is_small(plan_uri, at_most_bytes, at_most_files, policy.storage_options):
            otherwise(plan_uri, outcomes_uri)
            return
        copy_plan(
            ThisProcess(check),
            plan_uri,
            outcomes_uri,
            bandwidth_bytes_per_s=policy.bandwidth_bytes_per_s,
            parallel=policy.parallel_copies,
            max_tasks=policy.max_load_tasks,
            preserve=Preserve(letters=policy.preserve, strictly=policy.preserve_strictly),
            sources=policy.sources,
            options=policy.storage_options,
            observer=observer,
        )

    return run_copy


def _is_small(plan_uri: str, at_most_bytes: int, at_most_files: int, options: StorageOptions | None) -> bool:
    left_bytes, left_files = at_most_bytes, at_most_files
    for item in read_plan(plan_uri, options=options):
        left_bytes, left_files = left_bytes - item.size_bytes, left_files - 1
        if min(left_bytes, left_files) < 0:
            return False
    return True

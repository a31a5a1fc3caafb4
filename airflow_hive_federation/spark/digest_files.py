"""Computes SHA-256 digests of a list of files in tasks, for verification."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from airflow_hive_federation.progress.kinds import FileJob
from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.spark.balancing import deal
from airflow_hive_federation.spark.failures import combined
from airflow_hive_federation.spark.groups import GroupTask, Workers, failures_of, new_run_id, run_groups
from airflow_hive_federation.storage.bandwidth import TokenBucket
from airflow_hive_federation.storage.digests import FileDigest, FileToDigest, digest_file
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.plan_files import read_records

_GROUPS_PER_SLOT = 3


@dataclass(frozen=True, kw_only=True)
class DigestSummary:
    """The counts of a finished digest job.

    :param files: number of digested files.
    :param size_bytes: number of bytes read.
    :param tasks: number of tasks.
    :param seconds: wall time without Spark's start.
    """

    files: int
    size_bytes: int
    tasks: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class DigestWork:
    """Digests one file in a task.

    :param options: storage options.
    """

    options: StorageOptions | None = field(default=None, repr=False)

    def __call__(self, item: FileToDigest, bandwidth: TokenBucket | None) -> FileDigest:
        return digest_file(item.uri, size_bytes=item.size_bytes, bandwidth=bandwidth, options=self.options)


def digest_plan(
    workers: Workers,
    plan_uri: str,
    digests_uri: str,
    *,
    options: StorageOptions | None = None,
    observer: Observer = LOGGED,
) -> DigestSummary:
    """Digest the files of a plan.

    Every run reads every file: yesterday's digest cannot verify today's file.

    :param workers: run the tasks, in Spark or in this process.
    :param plan_uri: URI of the .jsonl file of :class:`FileToDigest` records.
    :param digests_uri: URI of a new directory for :class:`FileDigest` records.
    :param options: storage options.
    :param observer: receives the progress; by default, it is lines of the log.
    :raises FileVanishedError: files are gone, or have another length than the plan lists.
    :raises StorageError: files cannot be read.
    :raises SparkJobError: Spark failed.
    """
    begun_at = time.monotonic()
    items = list(read_records(plan_uri, FileToDigest, options=options))
    groups = deal(
        items,
        workers.slots * _GROUPS_PER_SLOT,
        size_of=lambda item: item.size_bytes,
        name_of=lambda item: item.uri,
        bytes_per_task=1 << 28,
        files_per_task=1000,
    )
    task = GroupTask(
        work=DigestWork(options=options),
        records_uri=digests_uri,
        run_id=new_run_id(),
        bytes_per_s=None,
        options=options,
        files_done=workers.counter(),
        bytes_done=workers.counter(),
    )
    total_bytes = sum(item.size_bytes for item in items)
    results = run_groups(
        workers, groups, task, job=FileJob.DIGEST, total_bytes=total_bytes, observer=observer
    )
    failures = failures_of(results)
    if failures:
        raise combined(failures)
    return DigestSummary(
        files=sum(result.records for result in results),
        size_bytes=sum(result.size_bytes for result in results),
        tasks=len(groups),
        seconds=round(time.monotonic() - begun_at, 3),
    )

"""The digest job: SHA-256 of a list of files, for verification."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_hive_federation.spark.balancing import deal
from airflow_hive_federation.spark.failures import combined
from airflow_hive_federation.spark.groups import GroupTask, failures_of, new_run_id, run_groups
from airflow_hive_federation.storage.bandwidth import TokenBucket
from airflow_hive_federation.storage.digests import FileDigest, FileToDigest, digest_file
from airflow_hive_federation.storage.plan_files import read_record_parts, read_records, write_records

_GROUPS_PER_SLOT = 3


@dataclass(frozen=True, kw_only=True)
class DigestSummary:
    """How a digest job ended.

    :param files: files digested.
    :param size_bytes: bytes read.
    :param tasks: Spark tasks.
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

    options: Mapping[str, Any] | None = None

    def __call__(self, item: FileToDigest, bandwidth: TokenBucket | None) -> FileDigest:
        return digest_file(item.uri, size_bytes=item.size_bytes, bandwidth=bandwidth, options=self.options)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The job's arguments."""
    parser.add_argument("--plan", required=True, help="URI of the .jsonl of files (see write_digest_plan)")
    parser.add_argument("--digests", required=True, help="URI of the directory for digests, a new one")
    parser.add_argument("--bandwidth", type=int, help="cap of the whole job in bytes per second")


def run(spark: Any, args: argparse.Namespace, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Run the job with parsed arguments; return its summary as JSON values."""
    summary = digest_plan(
        spark, args.plan, args.digests, bandwidth_bytes_per_s=args.bandwidth, options=options
    )
    return asdict(summary)


def digest_plan(
    spark: Any,
    plan_uri: str,
    digests_uri: str,
    *,
    bandwidth_bytes_per_s: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> DigestSummary:
    """Digest the files of a plan. Every run reads every file: a digest of yesterday verifies nothing today.

    :param spark: a SparkSession or a SparkContext.
    :param plan_uri: URI of a plan that :func:`write_digest_plan` wrote.
    :param digests_uri: URI of the directory that :func:`read_digests` reads.
    :param bandwidth_bytes_per_s: cap of the whole job.
    :raises FileVanishedError: files are gone, or have another length than listed.
    :raises StorageError: files cannot be read.
    :raises SparkJobError: Spark failed.
    """
    begun_at = time.monotonic()
    context = getattr(spark, "sparkContext", spark)
    items = list(read_records(plan_uri, FileToDigest, options=options))
    cap = bandwidth_bytes_per_s
    slots = context.defaultParallelism
    groups = deal(
        items,
        slots if cap else slots * _GROUPS_PER_SLOT,
        size_of=lambda item: item.size_bytes,
        name_of=lambda item: item.uri,
        bytes_per_task=1 << (62 if cap else 28),
        files_per_task=max(1, len(items)) if cap else 1000,
    )
    task = GroupTask(
        work=DigestWork(options=options),
        records_uri=digests_uri,
        run_id=new_run_id(),
        bytes_per_s=max(1.0, cap / len(groups)) if cap and groups else None,
        options=options,
        files_done=context.accumulator(0),
        bytes_done=context.accumulator(0),
    )
    total_bytes = sum(item.size_bytes for item in items)
    results = run_groups(context, groups, task, name="digest-files", total_bytes=total_bytes)
    failures = failures_of(results)
    if failures:
        raise combined(failures)
    return DigestSummary(
        files=sum(result.records for result in results),
        size_bytes=sum(result.size_bytes for result in results),
        tasks=len(groups),
        seconds=round(time.monotonic() - begun_at, 3),
    )


def write_digest_plan(
    uri: str, files: Iterable[FileToDigest], *, options: Mapping[str, Any] | None = None
) -> int:
    """Write the list of files to digest; return how many."""
    return write_records(uri, files, options=options)


def read_digests(uri: str, *, options: Mapping[str, Any] | None = None) -> dict[str, FileDigest]:
    """Read what digest jobs wrote into a directory, by file; the latest job's digest holds."""
    return {record.uri: record for record in read_record_parts(uri, FileDigest, options=options)}

"""Copies the files of a copy plan in a Spark job, or in this process.

The job records each file when it has copied it. A run after a kill copies only files without a record, or
whose target does not have the recorded length. ``_summary.json`` in the outcomes' directory holds the summary
of the last run.

A job that outlives its cycle stops: see :mod:`~airflow_hive_federation.storage.fence`.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.files import CopyItem, CopyOutcome
from airflow_hive_federation.progress.events import FilesProcessed
from airflow_hive_federation.progress.kinds import FileJob
from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.spark.balancing import balance
from airflow_hive_federation.spark.failures import combined, error_to_json
from airflow_hive_federation.spark.groups import (
    GroupResult,
    GroupTask,
    Workers,
    failures_of,
    new_run_id,
    run_groups,
)
from airflow_hive_federation.spark.workers import SparkWorkers
from airflow_hive_federation.storage.bandwidth import TokenBucket
from airflow_hive_federation.storage.copying import CopySettings, copy_file, survey_targets
from airflow_hive_federation.storage.fence import fence_of
from airflow_hive_federation.storage.filesystem import join
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.permissions import Preserve, check_preserved
from airflow_hive_federation.storage.plan_files import read_outcomes, read_plan
from airflow_hive_federation.storage.publishing import write_atomically
from airflow_hive_federation.storage.sources import SourceRoots

logger = logging.getLogger(__name__)

SUMMARY = "_summary.json"

#: Groups per core; several groups keep one slow group from delaying the end of the job.
_GROUPS_PER_SLOT = 3

#: Files that a task copies at the same time on stores with latency; on local disks, one at a time is fastest.
_REMOTE_THREADS = 4
#: The same on HDFS, where closing a file is mostly waiting: see :mod:`~airflow_hive_federation.storage.hdfs`.
_HDFS_THREADS = 8


@dataclass(frozen=True, kw_only=True)
class CopySummary:
    """The counts of a finished copy job.

    :param files: number of files in the plan.
    :param size_bytes: their total length according to the plan.
    :param recorded: number of files that an earlier run had copied.
    :param identical: number of files whose identical target existed without a record.
    :param copied: number of files that this run copied.
    :param copied_bytes: their total length.
    :param failed: number of files that the job could not copy.
    :param tasks: number of Spark tasks.
    :param seconds: wall time without Spark's start.
    :param unpreserved: number of files that lack some of the owner, group or permissions to preserve.
    :param placed_bytes: total length of the files that are in place, whichever run has copied them.
    """

    files: int
    size_bytes: int
    recorded: int
    identical: int
    copied: int
    copied_bytes: int
    failed: int
    tasks: int
    seconds: float
    unpreserved: int = 0
    placed_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class CopyWork:
    """Copies one item in a task.

    :param settings: settings of the copies.
    """

    settings: CopySettings

    def __call__(self, item: CopyItem, bandwidth: TokenBucket | None) -> CopyOutcome:
        self.settings.fence.check()
        return copy_file(item, self.settings, bandwidth=bandwidth)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job's arguments."""
    parser.add_argument(
        "--plan",
        required=True,
        help="URI of the copy plan: a .jsonl file (#sha256=<digest> binds it), or a directory",
    )
    parser.add_argument("--outcomes", required=True, help="URI of the directory for outcomes")
    parser.add_argument("--bandwidth", type=int, help="cap of the whole job in bytes per second")
    parser.add_argument("--parallel", type=int, help="files copied at once at most")
    parser.add_argument("--max-tasks", type=int, help="Spark tasks at most")
    parser.add_argument("--threads", type=int, help="files a task copies side by side")
    parser.add_argument(
        "--preserve", default="", help="owner (u), group (g), permissions (p), access list (a) to keep"
    )
    parser.add_argument(
        "--preserve-leniently", action="store_true", help="ignore attributes that cannot be kept"
    )
    parser.add_argument(
        "--sync",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="wait until each file, and its name, is on the disk",
    )
    parser.add_argument(
        "--source-root",
        action="append",
        default=[],
        help="URI of a directory that may be copied from; may be repeated. By default stores that machines "
        "share, and no local disk",
    )


def run(spark: object, args: argparse.Namespace, options: StorageOptions | None = None) -> dict[str, Any]:
    """Run the job with parsed arguments; return its summary as JSON values."""
    summary = copy_plan(
        SparkWorkers(spark),
        args.plan,
        args.outcomes,
        bandwidth_bytes_per_s=args.bandwidth,
        parallel=args.parallel,
        max_tasks=args.max_tasks,
        threads=args.threads,
        sync=args.sync,
        preserve=Preserve(letters=args.preserve, strictly=not args.preserve_leniently),
        sources=SourceRoots.of(args.source_root),
        options=options,
    )
    return asdict(summary)


def copy_plan(
    workers: Workers,
    plan_uri: str,
    outcomes_uri: str,
    *,
    bandwidth_bytes_per_s: int | None = None,
    parallel: int | None = None,
    max_tasks: int | None = None,
    threads: int | None = None,
    sync: bool = True,
    preserve: Preserve | None = None,
    sources: SourceRoots | None = None,
    options: StorageOptions | None = None,
    observer: Observer = LOGGED,
) -> CopySummary:
    """Copy the files of a plan that are not recorded as copied.

    :param workers: run the tasks, in Spark or in this process.
    :param plan_uri: URI of the plan, see :func:`.plan_files.read_plan`.
    :param outcomes_uri: URI of the directory for outcomes, see :func:`.plan_files.read_outcomes`.
    :param bandwidth_bytes_per_s: limit of the whole job; with it, the job has at most one task per core.
    :param parallel: greatest number of files that all tasks together copy at the same time.
    :param max_tasks: greatest number of Spark tasks.
    :param threads: files that a task copies at the same time; by default 1 between local paths, 8 on HDFS,
        else 4.
    :param sync: wait until each file is on the disk (``fsync``) before it gets its name, and then until the
        name is on the disk.
    :param preserve: parts of the sources' owners, groups and modes that the copies keep.
    :param sources: directories that items may come from; without it, the job trusts the plan's author.
    :param options: storage options, see :func:`.filesystem.options_for`.
    :param observer: receives the progress; by default, it is lines of the log, which a hook reads.
    :raises SourceNotAllowedError: an item lies outside of these directories; all others were copied.
    :raises FileVanishedError: files are gone, or changed during their copy.
    :raises StorageError: files cannot be read or written. All others were copied, except on a full disk.
    :raises CycleLostError: another cycle has begun; the job has copied no files since then.
    :raises ConfigurationError: two items of the plan have the same target, or a store's driver cannot
        preserve owners, groups or modes.
    :raises DumpCorruptError: the plan is damaged, or does not have the digest in its URI; no file is copied.
    :raises SparkJobError: Spark failed.
    """
    begun_at = time.monotonic()
    fence = fence_of(plan_uri, options)
    fence.check()
    items = distinct(read_plan(plan_uri, options=options))
    preserve = preserve or Preserve()
    check_preserved(preserve, items)
    run_id = new_run_id()
    # From here on, all state of the job lies on shared storage, where the next run finds it again.
    outcomes = read_outcomes(outcomes_uri, options=options)
    directories = sorted({item.target.rpartition("/")[0] for item in items})
    sizes = survey_targets(directories, options=options, sweep_runs_before=run_id)
    pending = pending_items(items, outcomes, sizes)
    groups = _groups(
        pending,
        workers.slots,
        capped=bandwidth_bytes_per_s is not None,
        at_most=min(bound for bound in (parallel, max_tasks, len(pending) + 1) if bound),
    )
    settings = CopySettings(
        options=options,
        run_id=run_id,
        sync=sync,
        rewrite=_rewrite_file,
        fence=fence,
        preserve=preserve,
        sources=sources,
    )
    task = GroupTask(
        work=CopyWork(settings=settings),
        records_uri=outcomes_uri,
        run_id=run_id,
        threads=min(threads or _threads(pending), max(1, (parallel or 1 << 30) // max(1, len(groups)))),
        # Each task gets an equal share, even if not all run at once: the job never exceeds the limit.
        bytes_per_s=max(1.0, bandwidth_bytes_per_s / len(groups))
        if bandwidth_bytes_per_s and groups
        else None,
        options=options,
        files_done=workers.counter(),
        bytes_done=workers.counter(),
    )
    results = run_groups(
        workers,
        groups,
        task,
        job=FileJob.COPY,
        total_bytes=sum(item.size_bytes for item in pending),
        observer=observer,
    )
    if any(result.attempt for result in results) or workers.speculates:
        # Failed or killed attempts may have left temporary files of this very run.
        survey_targets(directories, options=options, sweep_runs_before=f"{run_id}~")
    summary = summarize(items, pending, groups, results, time.monotonic() - begun_at)
    _finish(summary, results, outcomes_uri, options, observer)
    return summary


def is_carried_out(plan_uri: str, outcomes_uri: str, options: StorageOptions | None = None) -> bool:
    """Return whether all files of a plan are recorded as copied, and still have the recorded lengths.

    :raises DumpCorruptError: the plan or an outcome is damaged.
    :raises StorageError: the store cannot be read.
    """
    items = list(read_plan(plan_uri, options=options))
    outcomes = read_outcomes(outcomes_uri, options=options)
    directories = sorted({item.target.rpartition("/")[0] for item in items})
    return not pending_items(items, outcomes, survey_targets(directories, options=options))


def distinct(items: Iterable[CopyItem]) -> list[CopyItem]:
    """Return the items without repetitions.

    :raises ConfigurationError: two different items have the same target.
    """
    by_target: dict[str, CopyItem] = {}
    for item in items:
        first = by_target.setdefault(item.target, item)
        if first != item:
            raise ConfigurationError(
                f"The copy plan makes {item.target} twice: from {first.source} and from {item.source}.",
                remedy="Check that no two locations of the source map to one of the target.",
                path=item.target,
            )
    return list(by_target.values())


def pending_items(
    items: Iterable[CopyItem], outcomes: Mapping[str, CopyOutcome], sizes: Mapping[str, int]
) -> list[CopyItem]:
    """Return the items to copy: those without a record, or whose target differs from its record.

    :param outcomes: recorded outcomes by target.
    :param sizes: lengths of the existing files in bytes, by URI.
    """
    return [item for item in items if not _is_done(item, outcomes.get(item.target), sizes)]


def summarize(
    items: Sequence[CopyItem],
    pending: Sequence[CopyItem],
    groups: Sequence[Sequence[CopyItem]],
    results: Sequence[GroupResult],
    seconds: float,
) -> CopySummary:
    """Add up the results of all tasks."""
    finished = sum(result.records for result in results)
    copied = sum(result.changed for result in results)
    size_bytes = sum(item.size_bytes for item in items)
    missing_bytes = sum(item.size_bytes for item in pending) - sum(result.size_bytes for result in results)
    return CopySummary(
        files=len(items),
        size_bytes=size_bytes,
        recorded=len(items) - len(pending),
        identical=finished - copied,
        copied=copied,
        copied_bytes=sum(result.changed_bytes for result in results),
        failed=len(pending) - finished,
        tasks=len(groups),
        seconds=round(seconds, 3),
        unpreserved=sum(result.unpreserved for result in results),
        # A file that is rewritten on its way has another length than its source.
        placed_bytes=size_bytes - missing_bytes if finished < len(pending) else size_bytes,
    )


def _is_done(item: CopyItem, outcome: CopyOutcome | None, sizes: Mapping[str, int]) -> bool:
    if outcome is None or sizes.get(item.target) != outcome.size_bytes:
        return False
    return item.visible_write_ids is not None or outcome.size_bytes == item.size_bytes


def _groups(pending: Sequence[CopyItem], slots: int, *, capped: bool, at_most: int) -> list[list[CopyItem]]:
    """Group items into tasks: one per slot with a limit of the bandwidth, and never more than ``at_most``."""
    groups = [] if capped else balance(pending, slots * _GROUPS_PER_SLOT)
    if groups and len(groups) <= at_most:
        return groups
    tasks = min(slots, at_most) if capped else at_most
    return balance(pending, tasks, bytes_per_task=1 << 62, files_per_task=max(1, len(pending)))


def _threads(pending: Iterable[CopyItem]) -> int:
    schemes = {uri.partition(":")[0] for item in pending for uri in (item.source, item.target) if ":" in uri}
    if "hdfs" in schemes:
        return _HDFS_THREADS
    return 1 if schemes <= {"file"} else _REMOTE_THREADS


def _rewrite_file(source: str, target: str, visible_write_ids: str, options: StorageOptions | None) -> None:
    # Imported here, so that only the tasks that need pyarrow load it.
    from airflow_hive_federation.acid.rewrite import rewrite_file

    rewrite_file(source, target, visible_write_ids, options)


def _finish(
    summary: CopySummary,
    results: Sequence[GroupResult],
    outcomes_uri: str,
    options: StorageOptions | None,
    observer: Observer,
) -> None:
    failures = failures_of(results)
    document = {**asdict(summary), "failures": [error_to_json(failure) for failure in failures]}
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    write_atomically(join(outcomes_uri, SUMMARY), [text.encode()], options, private=True)
    observer(
        FilesProcessed(
            job=FileJob.COPY,
            files=summary.copied + summary.identical + summary.recorded,
            all_files=summary.files,
            size_bytes=summary.placed_bytes,
            all_bytes=summary.size_bytes,
            bytes_per_s=summary.copied_bytes / max(summary.seconds, 0.001),
        )
    )
    if summary.unpreserved:
        logger.warning(
            "copy-files: %s files, or directories of theirs, have another owner, group or mode than their "
            "sources: the user of this job may not set them",
            f"{summary.unpreserved:,}",
        )
    if failures:
        raise combined(failures)

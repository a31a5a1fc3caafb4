"""Processes files in groups, one Spark task per group, and writes a record of each finished file on the way.

The records lie in part files, ``<run id>-<digest of the group>-<task attempt>.jsonl``. No two attempts share
a part file, so a slow duplicate of a task (speculation) cannot overwrite the records of the quick one. Each
write replaces a part file as a whole, so a killed task leaves only valid part files.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from airflow_hive_federation.errors import (
    FileVanishedError,
    HiveFederationError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
)
from airflow_hive_federation.progress.events import FilesProcessed
from airflow_hive_federation.progress.kinds import FileJob
from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.spark.failures import error_from_json, error_to_json
from airflow_hive_federation.storage.bandwidth import TokenBucket
from airflow_hive_federation.storage.filesystem import join
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.plan_files import write_records
from airflow_hive_federation.waiting import PollPolicy, retry

#: Seconds between two writes of a running task's records; a kill loses at most the records of this time.
_RECORD_EVERY_S = 2.0

#: Seconds between two events of progress.
_PROGRESS_EVERY_S = 5.0

#: Pauses, in seconds, before a retry after a storage failure of unknown cause.
_RETRIES = PollPolicy(first_s=0.5, factor=4.0, longest_s=2.0)

#: Failures that a retry would only repeat.
_NOT_RETRIED = (FileVanishedError, StoragePermissionError, StorageFullError)


#: The items of a job, in groups that become tasks.
Groups = Sequence[Sequence[object]]


class Work(Protocol):
    """The function that processes one item; Spark pickles it to the executors."""

    def __call__(self, item: Any, bandwidth: TokenBucket | None) -> object:
        """Process the item and return its record, a dataclass with ``size_bytes``."""
        ...


class Counter(Protocol):
    """The part of Spark's accumulator that this module uses."""

    def add(self, term: int) -> None:
        """Add to the sum that the driver sees."""
        ...


@dataclass(frozen=True, kw_only=True)
class GroupResult:
    """The counts and failures of one task.

    :param records: number of finished items.
    :param changed: number of changed items: those with ``copied`` in a copy outcome; in other jobs, all.
    :param size_bytes: bytes of the finished items.
    :param changed_bytes: bytes of the changed items.
    :param unpreserved: number of items that lack some of the owner, group or permissions to preserve.
    :param failures: errors in the form of :func:`.failures.error_to_json`.
    :param attempt: number of the task's attempt; 0 for the first.
    """

    records: int
    changed: int
    size_bytes: int
    changed_bytes: int
    failures: tuple[Mapping[str, Any], ...]
    attempt: int
    unpreserved: int = 0


@dataclass(frozen=True, kw_only=True)
class GroupTask:
    """The function of a Spark task: takes a partition's groups, yields one :class:`GroupResult` per group.

    :param work: processes an item.
    :param records_uri: URI of the directory for the records.
    :param run_id: id of this run, greater than those of earlier runs.
    :param threads: number of items that the task processes at the same time.
    :param bytes_per_s: the task's share of the bandwidth; ``None`` for no limit.
    :param options: storage options of the records' directory.
    :param files_done: counts items for the events of progress.
    :param bytes_done: counts bytes for the events of progress.
    """

    work: Work
    records_uri: str
    run_id: str
    threads: int = 1
    bytes_per_s: float | None = None
    options: StorageOptions | None = field(default=None, repr=False)
    files_done: Counter
    bytes_done: Counter

    def __call__(self, groups: Iterator[Sequence[Any]]) -> Iterator[GroupResult]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt_id = context.taskAttemptId() if context is not None else 0
        number = context.attemptNumber() if context is not None else 0
        for group in groups:
            yield self.run(group, attempt_id, number)

    def run(self, group: Sequence[object], attempt_id: int = 0, attempt_number: int = 0) -> GroupResult:
        """Process a group.

        :param attempt_id: number of the attempt among all attempts of the job.
        :param attempt_number: number of the attempt of this task; 0 for the first.
        """
        uri = join(self.records_uri, f"{self.run_id}-{group_digest(group)}-{attempt_id:08}.jsonl")
        records: list[object] = []
        failures: list[HiveFederationError] = []
        written_at = time.monotonic()
        for record in self._work_through(group, failures):
            records.append(record)
            if time.monotonic() - written_at > _RECORD_EVERY_S:
                write_records(uri, records, options=self.options)
                written_at = time.monotonic()
        if records:
            write_records(uri, records, options=self.options)
        return _group_result(records, failures, attempt_number)

    def _work_through(self, group: Sequence[object], failures: list[HiveFederationError]) -> Iterator[Any]:
        """Yield records; add errors to ``failures`` and go on with other items, except on a full disk."""
        bandwidth = TokenBucket(self.bytes_per_s) if self.bytes_per_s is not None else None
        disk_full = threading.Event()

        def attempt(item: object) -> Any:
            return None if disk_full.is_set() else _patiently(lambda: self.work(item, bandwidth))

        for outcome in _outcomes(attempt, group, self.threads):
            if isinstance(outcome, HiveFederationError):
                failures.append(outcome)
                if isinstance(outcome, StorageFullError):
                    disk_full.set()
            elif outcome is not None:
                self.files_done.add(1)
                self.bytes_done.add(outcome.size_bytes)
                yield outcome


class Workers(Protocol):
    """Runs tasks of groups of items."""

    @property
    def slots(self) -> int:
        """Return the number of tasks that run side by side."""
        ...

    @property
    def speculates(self) -> bool:
        """Return whether a slow task may have a duplicate."""
        ...

    def counter(self) -> Counter:
        """Return a sum to which tasks add."""
        ...

    def run(self, groups: Groups, task: GroupTask, *, description: str) -> list[GroupResult]:
        """Run one task per group, and wait for all.

        :param description: the name of the work.
        :raises SparkJobError: Spark failed.
        """
        ...


def run_groups(
    workers: Workers,
    groups: Groups,
    task: GroupTask,
    *,
    job: FileJob,
    total_bytes: int,
    observer: Observer = LOGGED,
) -> list[GroupResult]:
    """Run one task per group, wait for all, and report the progress every few seconds.

    :param workers: run the tasks.
    :param groups: items, grouped by :func:`.balancing.deal`.
    :param task: the function of each task.
    :param job: the job, which names the work in Spark's UI and in the events of progress.
    :param total_bytes: bytes of all items.
    :param observer: receives the progress; by default, it is lines of the log.
    :raises SparkJobError: a task failed as a whole; failures of single items are in the results instead.
    """
    if not groups:
        return []
    total_files = sum(len(group) for group in groups)
    with _progress(task, job, total_files, total_bytes, observer):
        return workers.run(groups, task, description=job.value)


def failures_of(results: Sequence[GroupResult]) -> list[HiveFederationError]:
    """Return the errors of all tasks."""
    return [error_from_json(failure) for result in results for failure in result.failures]


def new_run_id() -> str:
    """Return an id of 16 hexadecimal digits that is greater than those of earlier runs."""
    return f"{time.time_ns():016x}"


def group_digest(group: Sequence[object]) -> str:
    """Return a digest of a group's items, 16 hexadecimal digits."""
    return hashlib.sha256("\n".join(map(repr, group)).encode()).hexdigest()[:16]


def _outcomes(attempt: Callable[[Any], Any], group: Sequence[object], threads: int) -> Iterator[Any]:
    if threads == 1:
        yield from map(attempt, group)
        return
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="files") as workers:
        jobs = [workers.submit(attempt, item) for item in group]
        try:
            for job in as_completed(jobs):
                yield job.result()
        finally:
            workers.shutdown(wait=True, cancel_futures=True)


def _patiently(work: Callable[[], object]) -> Any:
    """Return the record, or the error of the last try; retry failures of unknown cause."""
    try:
        return retry(work, _RETRIES, tries=3, on=StorageError, but_not_on=_NOT_RETRIED)
    except HiveFederationError as error:
        return error


def _group_result(
    records: Sequence[Any], failures: Sequence[HiveFederationError], attempt_number: int
) -> GroupResult:
    changed = [record for record in records if getattr(record, "copied", True)]
    return GroupResult(
        records=len(records),
        changed=len(changed),
        size_bytes=sum(record.size_bytes for record in records),
        changed_bytes=sum(record.size_bytes for record in changed),
        failures=tuple(error_to_json(failure) for failure in failures),
        attempt=attempt_number,
        unpreserved=sum(not getattr(record, "preserved", True) for record in records),
    )


@contextmanager
def _progress(
    task: GroupTask, job: FileJob, files: int, size_bytes: int, observer: Observer
) -> Iterator[None]:
    """Report the tasks' progress from a thread of the driver while the block runs."""
    ended = threading.Event()
    begun_at = time.monotonic()

    def report() -> None:
        while not ended.wait(_PROGRESS_EVERY_S):
            done_bytes = getattr(task.bytes_done, "value", 0)
            observer(
                FilesProcessed(
                    job=job,
                    files=getattr(task.files_done, "value", 0),
                    all_files=files,
                    size_bytes=done_bytes,
                    all_bytes=size_bytes,
                    bytes_per_s=done_bytes / (time.monotonic() - begun_at),
                )
            )

    thread = threading.Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()

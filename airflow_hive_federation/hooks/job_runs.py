"""Finds the application that an earlier try of a task has started, and waits for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.spark.failures import read_report
from airflow_hive_federation.spark.runs import JobRun, JobState, RunFiles, RunWatch
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.waiting import PATIENCE_S, PollPolicy, wait_until

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastorePool
    from airflow_hive_federation.transactions.lease import LeaseKeeper

logger = logging.getLogger(__name__)

#: The pauses between two readings of the files of a run.
POLL = PollPolicy(patience_s=PATIENCE_S)


class RunOver:
    """Looks whether the job of a submission does nothing more.

    :param attempt: id of the submission.
    :param alive: returns whether an application, by its id, waits or runs on the cluster, or ``None`` if
        nobody knows; it is called while the job has not begun.
    :param begin_s: seconds after which a job that has not begun, and of which nobody knows more, is over.
    """

    def __init__(
        self,
        files: RunFiles,
        attempt: str,
        *,
        alive: Callable[[str], bool | None] = lambda _: None,
        begin_s: float = 0.0,
    ) -> None:
        self._watch = RunWatch(files, attempt)
        self._alive = alive
        self._begin_by_s = time.monotonic() + begin_s

    def use(self, files: RunFiles) -> None:
        """Read with other options from now on, because credentials have expired."""
        self._watch.use(files)

    def state(self, application: str, *, stopped: bool = False) -> JobState:
        """Return the state of the job, with the cluster's answer on an application that has not begun.

        :param application: the cluster's id of the application; empty if it is unknown.
        :param stopped: the job is to end: one that has not begun does nothing.
        :raises StorageError: the store cannot be read.
        """
        state = self._watch.state()
        if state is JobState.UNCLAIMED and (stopped or not self._may_begin(application)):
            return JobState.ENDED
        return state

    def _may_begin(self, application: str) -> bool:
        alive = self._alive(application) if application else None
        return time.monotonic() < self._begin_by_s if alive is None else alive


def wait_for_run(
    files: RunFiles,
    run: JobRun,
    *,
    alive: Callable[[str], bool | None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Wait until the job of a submission does nothing more.

    :param run: the submission.
    :param alive: see :class:`RunOver`.
    :param stopped: returns true once the job is to end; the wait for a job that has not begun ends then.
    :raises StorageError: the store cannot be read.
    """
    look = RunOver(files, run.attempt, alive=alive)
    states: set[JobState] = set()

    def over() -> bool:
        state = look.state(run.application, stopped=stopped())
        if state is not JobState.ENDED and state not in states:
            states.add(state)
            logger.info(
                "An earlier try of this task has started %s, which %s; this try waits for its end",
                f"application {run.application}" if run.application else "this job",
                state.value,
            )
        return state is JobState.ENDED

    wait_until(over, POLL)


def result_of_run(files: RunFiles, run: JobRun) -> dict[str, object] | None:
    """Return the result that the job of an earlier submission has reported.

    An error is no result: a try after a failure runs the job again.

    :raises StorageError: the store cannot be read.
    """
    report = files.report_of(run.attempt)
    if report is None:
        return None
    try:
        return read_report(report)
    except HiveFederationError as error:
        logger.info("The job of an earlier try failed; this try runs it again: %s", error)
        return None


def lease_of(dump: str, source: MetastorePool, options: StorageOptions | None) -> LeaseKeeper:
    """Return the keeper of a dump's lease: nobody else keeps it while the process of its load is dead.

    :param source: connections to the source of the dump.
    :raises DumpIncompleteError: the dump is not finished.
    :raises StorageError: the store of the dump cannot be read.
    """
    from airflow_hive_federation.replication.format.directory import DumpDirectory
    from airflow_hive_federation.transactions.lease import LeaseKeeper

    return LeaseKeeper(source, DumpDirectory(dump, options).manifest().lease)

"""Finds the application that an earlier try of a task has started, and waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.spark.failures import read_report
from airflow_hive_federation.spark.runs import JobRun, JobState, RunFiles, RunWatch
from airflow_hive_federation.waiting import PATIENCE_S, PollPolicy, wait_until

logger = logging.getLogger(__name__)

#: The pauses between two readings of the files of a run.
POLL = PollPolicy(patience_s=PATIENCE_S)


def wait_for_run(
    files: RunFiles,
    run: JobRun,
    *,
    alive: Callable[[str], bool] = lambda _: False,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Wait until the job of a submission does nothing more.

    :param files: the files of the run.
    :param run: the submission.
    :param alive: returns whether an application, by its id, waits or runs on the cluster; it is called while
        the job has not begun.
    :param stopped: returns true once the job is to end; the wait for a job that has not begun ends then.
    :raises StorageError: the store cannot be read.
    """
    watch = RunWatch(files, run.attempt)
    application = run.application
    states: set[JobState] = set()

    def over() -> bool:
        state = watch.state()
        if state is JobState.UNCLAIMED and (not application or stopped() or not alive(application)):
            state = JobState.ENDED
        if state is not JobState.ENDED and state not in states:
            states.add(state)
            logger.info(
                "An earlier try of this task has started %s, which %s; this try waits for its end",
                f"application {application}" if application else "this job",
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

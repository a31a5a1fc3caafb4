"""Finds the application that an earlier try of a task has started, and waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.spark.failures import read_report
from airflow_hive_federation.spark.runs import JobRun, Life, RunFiles, RunWatch
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.waiting import PATIENCE_S, PollPolicy, wait_until

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastorePool
    from airflow_hive_federation.transactions.lease import LeaseKeeper

logger = logging.getLogger(__name__)

#: How often the files of a run are read.
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
    :param alive: returns whether the cluster still has an application, by its id, to run or running; it is
        asked while the job has not begun.
    :param stopped: returns true once the job was asked to end: one that has not begun is not waited for then.
    :raises StorageError: the store cannot be read.
    """
    watch = RunWatch(files, run.attempt)
    application = run.application
    lives: set[Life] = set()

    def over() -> bool:
        life = watch.look()
        if life is Life.UNCLAIMED and (not application or stopped() or not alive(application)):
            life = Life.ENDED
        if life is not Life.ENDED and life not in lives:
            lives.add(life)
            logger.info(
                "An earlier try has started %s; %s. This try waits for it",
                f"application {application}" if application else "this job",
                life.value,
            )
        return life is Life.ENDED

    wait_until(over, POLL)


def result_of_run(files: RunFiles, run: JobRun) -> dict[str, object] | None:
    """Return the result that the job of an earlier submission has reported.

    An error is no result: the job is to run again, because a try follows a failure to mend it.

    :raises StorageError: the store cannot be read.
    """
    report = files.report_of(run.attempt)
    if report is None:
        return None
    try:
        return read_report(report)
    except HiveFederationError as error:
        logger.info("The application of an earlier try failed, and is run again: %s", error)
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

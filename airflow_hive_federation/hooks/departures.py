"""Describes the jobs for which tasks leave their workers."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_hive_federation.waiting import Departure


@dataclass(frozen=True, kw_only=True)
class AwaitedJob:
    """A job for which a task has left its worker.

    :param report: URI of the job's report.
    :param attempt: id of the submission.
    :param own: this try has submitted the job; otherwise an earlier one has.
    """

    report: str
    attempt: str
    own: bool


class JobDeparture(Departure):
    """Leaves a worker while a job works on a cluster."""

    def __init__(self, job: AwaitedJob) -> None:
        super().__init__(f"The job that reports to {job.report} works on its cluster.")
        self.job = job

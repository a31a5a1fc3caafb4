"""Defines the events of Spark's applications."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_hive_federation.progress.events import Event


@dataclass(frozen=True, kw_only=True)
class SparkJobSeen(Event):
    """A Spark job was looked at, whose task has left its worker.

    :param application: the cluster's id of the application; empty if it is unknown.
    :param report: URI of the job's report.
    :param state: the state in words.
    """

    application: str
    report: str
    state: str


@dataclass(frozen=True, kw_only=True)
class ApplicationStarted(Event):
    """A Spark job has begun on a cluster.

    :param application: the cluster's id of the application.
    """

    application: str

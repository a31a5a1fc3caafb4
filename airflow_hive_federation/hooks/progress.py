"""Writes events of progress into the logs of tasks and triggers, and into Airflow's metrics."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_hive_federation.progress.cycle_events import CycleFailed
from airflow_hive_federation.progress.events import Event
from airflow_hive_federation.progress.metrics import measured
from airflow_hive_federation.progress.observers import Observer
from airflow_hive_federation.progress.words import words

#: The environment variable that lets each log line carry its event.
LOG_EVENTS_VARIABLE = "AIRFLOW_HIVE_FEDERATION_LOG_EVENTS"
#: The field of a log line that holds the event.
EVENT_FIELD = "hive_federation_event"

_METHODS = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning"}


def task_observer(log: object) -> Observer:
    """Return an observer that writes a line of a task's log per event, and the metrics of the event.

    Steps appear at the level DEBUG. ``[metrics]`` of Airflow's configuration sets where the metrics go.

    If the environment variable ``AIRFLOW_HIVE_FEDERATION_LOG_EVENTS`` is ``true``, each line also has the
    field ``hive_federation_event`` with the event, for programs that read Airflow's logs as JSON.

    :param log: the logger of an operator, a sensor, a trigger or a hook.
    """
    # The commands read this module's names without Airflow.
    from airflow_hive_federation.hooks.compat import airflow_metrics

    # A logger of Python's own library takes no fields.
    with_fields = os.environ.get(LOG_EVENTS_VARIABLE) == "true" and not isinstance(log, logging.Logger)

    measure = measured(airflow_metrics())

    def observe(event: Event) -> None:
        measure(event)
        fields = {EVENT_FIELD: event.to_json()} if with_fields else {}
        getattr(log, _METHODS[event.level])("%s", words(event), **fields)

    return observe


@contextmanager
def failures_counted(database: str) -> Iterator[None]:
    """Count a failure of the task in Airflow's metrics; a skipped or deferred task has not failed.

    :param database: the database that the task works on; empty if it has none.
    """
    from airflow_hive_federation.hooks.compat import AirflowException, AirflowSkipException, airflow_metrics

    try:
        yield
    except AirflowSkipException:
        raise
    except AirflowException as error:
        failed = CycleFailed(database=database, error=str(error), failures=1, pause_s=0.0)
        measured(airflow_metrics())(failed)
        raise

"""A command shows Airflow's log lines while it runs, and not after it."""

from __future__ import annotations

import io
import logging

import structlog
from airflow.sdk.log import redact  # noqa: F401 - configures Airflow's logging, as the command does

from airflow_hive_federation.cli.airflow_logs import logging_to
from airflow_hive_federation.cli.story import Story


def test_counts_and_warnings_are_shown_and_nothing_else() -> None:
    printed = io.StringIO()
    with logging_to(Story(printed)):
        log = structlog.get_logger("spark")
        log.info("24/01/01 INFO SparkContext: Running Spark")
        log.warning("The source is slow")
    assert printed.getvalue().split() == ["The", "source", "is", "slow"]


def test_afterwards_logging_is_as_it_was() -> None:
    configured = structlog.get_config()
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    printed = io.StringIO()
    with logging_to(Story(printed)):
        assert root.handlers != handlers
    printed.close()
    structlog.get_logger("task").warning("A task goes on, and its warning is not the command's")
    assert structlog.get_config() == configured
    assert (root.handlers, root.level) == (handlers, level)

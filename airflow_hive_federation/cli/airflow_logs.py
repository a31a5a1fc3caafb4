"""Redirects Airflow's logging while a command runs, because Airflow logs to stdout, which is for results."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from airflow_hive_federation.cli.story import Story

_WARNINGS = frozenset({"warning", "error", "critical"})


@contextmanager
def logging_to(story: Story) -> Iterator[None]:
    """Send warnings to a story within the block; drop the other lines of Airflow's log.

    Of spark-submit's many lines, a user needs none; if it fails, the error contains them.
    The end of the block restores the logging, because a program that continues may have called the command.
    """
    import structlog

    # This import configures Airflow's logging, which must happen before the configuration below.
    from airflow_hive_federation.hooks.compat import redact

    def show(_logger: object, level: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if level in _WARNINGS:
            story.detail(str(redact(str(entry.get("event", "")))))
        raise structlog.DropEvent

    warnings = logging.StreamHandler(sys.stderr)
    warnings.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    configured = structlog.get_config()
    structlog.configure(processors=[show], cache_logger_on_first_use=False)
    try:
        with _handlers("airflow.task", []), _handlers("", [warnings], logging.WARNING):
            yield
    finally:
        structlog.configure(**configured)


@contextmanager
def _handlers(name: str, handlers: list[logging.Handler], level: int | None = None) -> Iterator[None]:
    logger = logging.getLogger(name)
    before, logger.handlers = logger.handlers, handlers
    level_before = logger.level
    logger.setLevel(level_before if level is None else level)
    try:
        yield
    finally:
        logger.handlers = before
        logger.setLevel(level_before)

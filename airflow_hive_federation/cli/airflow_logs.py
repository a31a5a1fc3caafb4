"""Redirects Airflow's logging while a command runs, because Airflow logs to stdout, which is for results."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

from airflow_hive_federation.cli.story import Story

_WARNINGS = frozenset({"warning", "error", "critical"})
#: The fields of a line of Airflow's log.
_Entry = MutableMapping[str, Any]
#: Takes the level and the fields of a line.
_Show = Callable[[str, _Entry], None]
#: The changes of logging that end with the running command; ``None`` outside of a command.
_OF_COMMAND: ContextVar[ExitStack | None] = ContextVar("of_command", default=None)


@contextmanager
def log_of_command() -> Iterator[None]:
    """End the changes of :func:`log_to_stderr` with the block, which is a command."""
    with ExitStack() as changes:
        token = _OF_COMMAND.set(changes)
        try:
            yield
        finally:
            _OF_COMMAND.reset(token)


def log_to_stderr() -> None:
    """Send the warnings of Airflow's log to stderr until the command ends; drop its other lines.

    This imports Airflow, which takes a second: a command calls it before it uses Airflow, and not otherwise.
    """
    changes = _OF_COMMAND.get()
    if changes is None:
        return
    # A second call changes nothing. The token of the first one still ends with the command.
    _OF_COMMAND.set(None)
    changes.enter_context(_apart(_print_warning))


def _print_warning(level: str, entry: _Entry) -> None:
    from airflow_hive_federation.hooks.compat import redact

    if level in _WARNINGS:
        print(f"{level.upper()} {redact(str(entry.get('event', '')))}", file=sys.stderr)


@contextmanager
def logging_to(story: Story, *, verbose: bool = False) -> Iterator[None]:
    """Send warnings to a story within the block; drop the other lines of Airflow's log.

    Of spark-submit's many lines, a user needs none; if it fails, the error contains the last ones.
    The end of the block restores the logging, because a program that continues may have called the command.

    :param verbose: send all lines to the story.
    """
    log_to_stderr()
    from airflow_hive_federation.hooks.compat import redact

    def show(level: str, entry: _Entry) -> None:
        if verbose or level in _WARNINGS:
            story.detail(str(redact(str(entry.get("event", "")))))

    with _apart(show):
        yield


@contextmanager
def _apart(show: _Show) -> Iterator[None]:
    """Keep Airflow's log out of stdout within the block."""
    # This import configures Airflow's logging, which must happen before the configuration below.
    import airflow_hive_federation.hooks.compat  # noqa: F401

    warnings = logging.StreamHandler(sys.stderr)
    warnings.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    with _lines_to(show), _handlers("airflow.task", []), _handlers("", [warnings], logging.WARNING):
        yield


@contextmanager
def collected_errors() -> Iterator[list[BaseException]]:
    """Collect the exceptions that Airflow logs within the block; no line of its log is printed.

    Airflow logs the failure of a secrets backend and continues with the next one, so that a variable of a
    database that does not answer seems not to exist.
    """
    log_to_stderr()
    import airflow_hive_federation.hooks.compat  # noqa: F401 - configures Airflow's logging

    errors: list[BaseException] = []

    def collect(_level: str, entry: _Entry) -> None:
        error = sys.exc_info()[1]
        if entry.get("exc_info") and error is not None:
            errors.append(error)

    with _lines_to(collect):
        yield errors


@contextmanager
def _lines_to(show: _Show) -> Iterator[None]:
    import structlog

    def process(_logger: object, level: str, entry: _Entry) -> _Entry:
        show(level, entry)
        raise structlog.DropEvent

    configured = structlog.get_config()
    structlog.configure(processors=[process], cache_logger_on_first_use=False)
    try:
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

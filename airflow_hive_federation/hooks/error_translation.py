"""Turns the package's errors into Airflow's, in one place."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.hooks.compat import AirflowException, AirflowFailException

logger = logging.getLogger(__name__)


@contextmanager
def as_airflow_error() -> Iterator[None]:
    """Fail a task for good on an error that a retry cannot mend, and let Airflow retry the others.

    :raises AirflowFailException: the error is terminal.
    :raises AirflowException: the error is retryable.
    """
    try:
        yield
    except HiveFederationError as error:
        # Airflow logs each error of a chain, with its text: one is enough, and its origin is for developers.
        logger.debug("The error comes from here:", exc_info=error)
        raise airflow_error(error_text(error), retryable=error.retryable) from None


def origin_of(error: BaseException) -> HiveFederationError | None:
    """Return the package's error behind one of Airflow's; ``None`` if there is none."""
    for origin in (error, error.__cause__, error.__context__):
        if isinstance(origin, HiveFederationError):
            return origin
    return None


def airflow_error(text: str, *, retryable: bool) -> AirflowException:
    """Return Airflow's error for a package error of which only the text is known (a trigger sent it)."""
    return AirflowException(text) if retryable else AirflowFailException(text)


def error_text(error: HiveFederationError) -> str:
    """Return the text of the error after its class name, which Airflow's own classes do not show."""
    return f"{type(error).__name__}: {error}"

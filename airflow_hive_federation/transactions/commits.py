"""Commits transactions, again if the outcome is unknown or the metastore's database was busy."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from airflow_hive_federation.errors import (
    MetastoreError,
    MetastoreServerError,
    NoSuchTransactionError,
    OutcomeUnknownError,
)

log = logging.getLogger(__name__)

_PAUSES_S = (0.5, 2.0, 5.0)


def commit_patiently(
    commit: Callable[[], object], txn_id: int, *, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Commit a transaction; repeat the call if its outcome is unknown, or if the metastore has failed.

    A repeated commit of a committed transaction succeeds, and that of an aborted one raises an error. A busy
    database of the metastore rolls back its own transactions ("Internal error").

    :param commit: makes the call.
    :param sleep: waits for a number of seconds.
    :raises TransactionAbortedError: on a conflict, or if the metastore has aborted the transaction.
    :raises OutcomeUnknownError: the connection broke, and broke again or the metastore no longer keeps the
        transaction's outcome.
    :raises MetastoreServerError: the metastore failed in every attempt, or failed and no longer keeps the
        outcome.
    """
    failure: MetastoreError | None = None
    for pause_s in (*_PAUSES_S, None):
        try:
            commit()
        except NoSuchTransactionError as error:
            if failure is None:
                raise
            raise failure from error
        except OutcomeUnknownError as error:
            if isinstance(failure, OutcomeUnknownError) or pause_s is None:
                raise
            failure = error
        except MetastoreServerError as error:
            if pause_s is None:
                raise
            failure = error
            log.warning("transaction %d: %s; tried again in %g s", txn_id, error, pause_s)
            sleep(pause_s)
        else:
            return

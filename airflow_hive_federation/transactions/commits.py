"""Commits transactions, again if the outcome is unknown or the metastore's database was busy."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from airflow_hive_federation.errors import (
    HiveFederationError,
    MetastoreServerError,
    NoSuchTransactionError,
    OutcomeUnknownError,
    TransactionAbortedError,
)

log = logging.getLogger(__name__)

_PAUSES_S = (0.5, 2.0, 5.0)


def commit_patiently(
    commit: Callable[[], object], txn_id: int, *, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Commit a transaction; repeat the call if its outcome is unknown, or if the metastore has failed.

    A repeated commit of a committed transaction succeeds, and that of an aborted one raises an error. A busy
    database of the metastore rolls back its own transactions ("Internal error"). An unknown outcome stays
    unknown if a later attempt fails with a retryable error, a metastore that is away for instance: by that
    error, the caller would write the same rows in another transaction.

    :param commit: makes the call.
    :param sleep: waits for a number of seconds.
    :raises TransactionAbortedError: on a conflict, or if the metastore has aborted the transaction.
    :raises OutcomeUnknownError: the connection broke, and no later attempt has found out the outcome.
    :raises MetastoreServerError: the metastore failed in every attempt, or failed and no longer keeps the
        outcome.
    """
    unknown: OutcomeUnknownError | None = None
    busy: MetastoreServerError | None = None
    for pause_s in (*_PAUSES_S, None):
        try:
            commit()
        except TransactionAbortedError:
            raise
        except HiveFederationError as error:
            if isinstance(error, MetastoreServerError) and pause_s is not None:
                busy = error
                log.warning("transaction %d: %s; tried again in %g s", txn_id, error, pause_s)
                sleep(pause_s)
            elif isinstance(error, OutcomeUnknownError):
                if unknown is not None or pause_s is None:
                    raise
                unknown = error
            elif unknown is not None:
                raise unknown from error
            elif isinstance(error, NoSuchTransactionError) and busy is not None:
                raise busy from error
            else:
                raise
        else:
            return

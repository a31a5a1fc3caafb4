"""Commits transactions, again if the outcome is unknown or the metastore's database was busy."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from airflow_hive_federation.errors import (
    HiveFederationError,
    MetastoreError,
    MetastoreServerError,
    OutcomeUnknownError,
    TransactionAbortedError,
)

log = logging.getLogger(__name__)

_PAUSES_S = (0.5, 2.0, 5.0)


def commit_patiently(
    commit: Callable[[], object], txn_id: int, *, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Commit a transaction; repeat the call if its outcome is unknown, or if the metastore has failed.

    A repeated commit of a committed transaction succeeds, and that of an aborted one raises an error. A
    metastore that fails ("Internal error") has mostly rolled back, because its database was busy. But a
    listener may also fail after the commit (``HMSHandler.commit_txn``). So only a success or an abort settles
    the outcome after such answers: by any other error, the caller would write the same rows again.

    :param commit: makes the call.
    :param sleep: waits for a number of seconds.
    :raises TransactionAbortedError: on a conflict, or if the metastore has aborted the transaction.
    :raises OutcomeUnknownError: the connection broke, or the metastore failed, and no later attempt has found
        out the outcome.
    """
    doubt: MetastoreError | None = None
    for pause_s in (*_PAUSES_S, None):
        try:
            commit()
        except TransactionAbortedError:
            raise
        except OutcomeUnknownError as error:
            if isinstance(doubt, OutcomeUnknownError) or pause_s is None:
                raise
            doubt = error
        except MetastoreServerError as error:
            doubt = doubt or error
            if pause_s is None:
                raise _unknown(txn_id, doubt) from error
            log.warning("transaction %d: %s; tried again in %g s", txn_id, error, pause_s)
            sleep(pause_s)
        except HiveFederationError as error:
            if doubt is None:
                raise
            raise _unknown(txn_id, doubt) from error
        else:
            return


def _unknown(txn_id: int, doubt: MetastoreError) -> OutcomeUnknownError:
    if isinstance(doubt, OutcomeUnknownError):
        return doubt
    return OutcomeUnknownError(
        f"It is unknown whether transaction {txn_id} was committed: {doubt.message}",
        remedy="Look at the metastore's log, and whether its rows are there, before you repeat it.",
    )

"""Repeated commits: what each course of answers ends in."""

from __future__ import annotations

import pytest

from airflow_hive_federation.errors import (
    HiveFederationError,
    MetastoreServerError,
    MetastoreUnreachableError,
    NoSuchTransactionError,
    OutcomeUnknownError,
    TransactionAbortedError,
    TunnelUnreachableError,
)
from airflow_hive_federation.transactions.commits import commit_patiently

BUSY = MetastoreServerError("Internal error.")
UNKNOWN = OutcomeUnknownError("The connection broke.")
GONE = NoSuchTransactionError("No such transaction 7.")
ABORTED = TransactionAbortedError("Aborted.")
AWAY = MetastoreUnreachableError("No metastore answers.")
IN_DOUBT = OutcomeUnknownError("It is unknown whether transaction 7 was committed: Internal error.")
CUT_OFF = TunnelUnreachableError("A hop does not answer.")


@pytest.mark.parametrize(
    ("answers", "end", "pauses"),
    [
        ([None], None, []),
        ([UNKNOWN, None], None, []),
        ([BUSY, None], None, [0.5]),
        ([BUSY, UNKNOWN, None], None, [0.5]),
        ([BUSY, BUSY, BUSY, None], None, [0.5, 2.0, 5.0]),
        ([BUSY, BUSY, BUSY, BUSY], IN_DOUBT, [0.5, 2.0, 5.0]),
        ([UNKNOWN, UNKNOWN], UNKNOWN, []),
        ([UNKNOWN, GONE], UNKNOWN, []),
        ([BUSY, GONE], IN_DOUBT, [0.5]),
        ([UNKNOWN, ABORTED], ABORTED, []),
        ([UNKNOWN, AWAY], UNKNOWN, []),
        ([UNKNOWN, CUT_OFF], UNKNOWN, []),
        ([UNKNOWN, BUSY, GONE], UNKNOWN, [2.0]),
        ([UNKNOWN, BUSY, AWAY], UNKNOWN, [2.0]),
        ([UNKNOWN, BUSY, ABORTED], ABORTED, [2.0]),
        ([UNKNOWN, BUSY, None], None, [2.0]),
        ([BUSY, UNKNOWN, BUSY, BUSY], UNKNOWN, [0.5, 5.0]),
        ([BUSY, AWAY], IN_DOUBT, [0.5]),
        ([AWAY], AWAY, []),
        ([GONE], GONE, []),
        ([ABORTED], ABORTED, []),
    ],
)
def test_courses_of_a_commit(
    answers: list[HiveFederationError | None], end: HiveFederationError | None, pauses: list[float]
) -> None:
    left, slept = list(answers), []

    def commit() -> None:
        answer = left.pop(0)
        if answer is not None:
            raise answer

    if end is None:
        commit_patiently(commit, 7, sleep=slept.append)
    else:
        with pytest.raises(type(end)) as caught:
            commit_patiently(commit, 7, sleep=slept.append)
        assert caught.value.message == end.message
    assert (left, slept) == ([], pauses)

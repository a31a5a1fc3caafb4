"""A transaction whose commit is interrupted: its files stay, and its heartbeats stop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from airflow_hive_federation.errors import (
    MetastoreUnreachableError,
    OutcomeUnknownError,
    TransactionAbortedError,
    TunnelUnreachableError,
)
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.transactions import transaction as module
from airflow_hive_federation.transactions.transaction import Transaction, TransactionState

ABORTED = TransactionAbortedError("Aborted.")
IN_DOUBT: list[BaseException] = [
    KeyboardInterrupt(),
    TimeoutError("The task ran out of time."),
    OutcomeUnknownError("The connection broke."),
    MetastoreUnreachableError("No metastore answers."),
    TunnelUnreachableError("A hop does not answer."),
]


class Course:
    """A client whose commits end with an error, and the calls that a transaction made after it."""

    def __init__(self, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error, self.calls = error, list[str]()
        heart = SimpleNamespace(loss=None, stop=lambda: self.calls.append("heart stopped"))
        started = SimpleNamespace(start=lambda: heart)
        monkeypatch.setattr(module, "transaction_timeout_s", lambda client: 300.0)
        monkeypatch.setattr(module, "transaction_heartbeat", lambda *given, **settings: started)

    def open_txns(self, *, kind: object) -> list[int]:
        return [7]

    def commit_txn(self, txn_id: int, *, excl_write_enabled: bool) -> None:
        raise self.error

    def abort_txns(self, txn_ids: list[int]) -> None:
        self.calls.append("aborted")

    def transaction(self) -> Transaction:
        return Transaction(cast("MetastoreClient", self))

    def run(self, transaction: Transaction, *, explicitly: bool) -> None:
        with transaction:
            transaction.on_abort(lambda: self.calls.append("files removed"))
            if explicitly:
                transaction.commit()


@pytest.mark.parametrize("error", IN_DOUBT, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("explicitly", [True, False])
def test_files_of_a_commit_in_doubt_stay(
    error: BaseException, explicitly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = Course(error, monkeypatch)
    transaction = course.transaction()
    with pytest.raises(type(error)):
        course.run(transaction, explicitly=explicitly)
    assert course.calls == ["heart stopped"]
    assert transaction.state is TransactionState.UNKNOWN
    # A caller may still ask for the abort, which concerns the metastore only.
    transaction.abort()
    assert course.calls == ["heart stopped", "aborted"]


@pytest.mark.parametrize("explicitly", [True, False])
def test_files_of_an_aborted_commit_go(explicitly: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    course = Course(ABORTED, monkeypatch)
    transaction = course.transaction()
    with pytest.raises(TransactionAbortedError):
        course.run(transaction, explicitly=explicitly)
    assert course.calls == ["heart stopped", "aborted", "files removed"]
    assert transaction.state is TransactionState.ABORTED

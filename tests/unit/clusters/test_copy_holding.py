"""A copy to a cluster whose transaction has ended may lack files, and is made anew by another attempt."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.clusters.copies.holding import Held
from airflow_hive_federation.errors import ReadTransactionLostError, TransactionAbortedError


def metastore(**ranges: set[int]) -> Any:
    """A metastore that answers a heartbeat."""
    answer = SimpleNamespace(**{"aborted": None, "nosuch": None, **ranges})
    return SimpleNamespace(heartbeat_txn_range=lambda *_: answer)


def held(lost: str = "") -> Held:
    """A copy's transaction, which has confirmed no heartbeat for a while if it is lost."""

    def check() -> None:
        if lost:
            raise TransactionAbortedError(lost, remedy="Run the whole transaction again.", txn_id=7)

    transaction: Any = SimpleNamespace(id=7, check=check)
    return Held(transaction=transaction, snapshot=None)


@pytest.mark.parametrize(
    ("lost", "client", "reason"),
    [
        ("", metastore(aborted={7}), "Transaction 7 was aborted"),
        ("", metastore(nosuch={7}), "Transaction 7 was aborted"),
        ("It sent no heartbeat for 600 s.", metastore(), "no heartbeat for 600 s"),
    ],
)
def test_a_transaction_that_has_ended_is_retried(lost: str, client: Any, reason: str) -> None:
    with pytest.raises(ReadTransactionLostError, match=reason) as caught:
        held(lost).prove(client)
    assert caught.value.retryable
    assert caught.value.facts == {"txn_id": 7}
    assert caught.value.remedy == "Run the copy again."


def test_an_open_transaction_proves_its_files() -> None:
    held().prove(metastore())

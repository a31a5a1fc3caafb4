"""Transactions on a real metastore: locks, conflicts, aborts from outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import (
    ConfigurationError,
    LockTimeoutError,
    MetastoreServerError,
    TransactionAbortedError,
)
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.transactions import commits
from airflow_hive_federation.transactions.locks import TableWrite, WriteKind
from airflow_hive_federation.transactions.transaction import (
    Transaction,
    TransactionState,
    heartbeat_interval_s,
    joined,
)
from airflow_hive_federation.waiting import PollPolicy
from tests.support.small_source import make_table

SOON = PollPolicy(first_s=0.05, timeout_s=0.3)
UPDATE = TableWrite(database="txns", table="t", kind=WriteKind.UPDATE)
INSERT = TableWrite(database="txns", table="t", kind=WriteKind.INSERT)


@pytest.fixture(scope="module")
def client(source: EmbeddedMetastore) -> Iterator[MetastoreClient]:
    with MetastoreClient(MetastoreSettings(uris=(source.uri,))) as client:
        client.create_database(types.Database(name="txns", parameters={}))
        make_table(client, "txns", "t")
        yield client


def test_commit_makes_its_write_id_valid(client: MetastoreClient) -> None:
    with Transaction(client) as transaction:
        transaction.lock([INSERT])
        write_id = transaction.write_id("txns", "t")
        assert transaction.write_id("txns", "t") == write_id
        assert not transaction.snapshot("txns", "t").write_ids.is_valid(write_id)
    assert transaction.state is TransactionState.COMMITTED
    assert _is_valid(client, write_id)


@pytest.mark.parametrize("carried_out", [False, True])
def test_a_commit_at_which_the_metastore_failed_is_tried_again(
    carried_out: bool, client: MetastoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = client.commit_txn
    failed: list[int] = []

    def fail_once(txn_id: int, **options: Any) -> None:
        if failed:
            commit(txn_id, **options)
            return
        if carried_out:
            commit(txn_id, **options)
        failed.append(txn_id)
        raise MetastoreServerError("commit_txn: Internal error processing commit_txn")

    monkeypatch.setattr(client, "commit_txn", fail_once)
    monkeypatch.setattr(commits, "_PAUSES_S", (0.0,))
    with Transaction(client) as transaction:
        transaction.lock([INSERT])
        write_id = transaction.write_id("txns", "t")
    assert failed == [transaction.id]
    assert transaction.state is TransactionState.COMMITTED
    assert _is_valid(client, write_id)


def test_an_error_aborts(client: MetastoreClient) -> None:
    cleaned = []
    with pytest.raises(KeyError), Transaction(client) as transaction:  # noqa: PT012
        transaction.lock([INSERT])
        write_id = transaction.write_id("txns", "t")
        transaction.on_abort(lambda: cleaned.append(1))
        raise KeyError
    assert cleaned == [1]
    assert transaction.state is TransactionState.ABORTED
    assert not _is_valid(client, write_id)


def test_of_two_overlapping_updates_the_second_is_aborted(client: MetastoreClient) -> None:
    with pytest.raises(TransactionAbortedError), Transaction(client, shared_writes=True) as second:  # noqa: PT012
        with Transaction(client, shared_writes=True) as first:
            first.lock([UPDATE])
            second.lock([UPDATE])
            first.write_id("txns", "t")
            second.write_id("txns", "t")
        assert first.state is TransactionState.COMMITTED
    assert second.state is TransactionState.ABORTED


def test_a_lock_that_is_held_is_not_granted(client: MetastoreClient) -> None:
    with Transaction(client) as first:
        first.lock([UPDATE])
        with (
            pytest.raises(LockTimeoutError, match=r"locks on txns\.t") as caught,
            Transaction(client, lock_policy=SOON) as second,
        ):
            second.lock([UPDATE])
    assert caught.value.retryable
    assert second.state is TransactionState.ABORTED


def test_aborted_from_outside(client: MetastoreClient) -> None:
    with pytest.raises(TransactionAbortedError), Transaction(client) as transaction:  # noqa: PT012
        transaction.lock([INSERT])
        transaction.write_id("txns", "t")
        client.abort_txns([transaction.id])


def test_a_failed_statement_dooms_the_callers_transaction(client: MetastoreClient) -> None:
    def fails(transaction: Transaction) -> None:
        with joined(client, transaction):
            raise KeyError

    with pytest.raises(TransactionAbortedError, match="KeyError"), Transaction(client) as transaction:  # noqa: SIM117
        with pytest.raises(KeyError):
            fails(transaction)
    assert transaction.state is TransactionState.ABORTED


def test_rows_may_be_changed_once(client: MetastoreClient) -> None:
    with Transaction(client) as transaction:
        transaction.claim("txns", "t", [WriteKind.UPDATE, WriteKind.DELETE])
        transaction.claim("txns", "T", [WriteKind.INSERT])
        with pytest.raises(ConfigurationError, match=r"changed rows of txns\.t before"):
            transaction.claim("txns", "t", [WriteKind.DELETE])
        transaction.claim("txns", "u", [WriteKind.OVERWRITE])
        with pytest.raises(ConfigurationError, match=r"changed rows of txns\.u before"):
            transaction.claim("txns", "u", [WriteKind.INSERT])
        assert [transaction.next_statement_id("txns", "t") for _ in range(3)] == [0, 1, 2]


def test_heartbeats_keep_half_the_metastores_timeout(client: MetastoreClient) -> None:
    assert heartbeat_interval_s(client) == 150


def _is_valid(client: MetastoreClient, write_id: int) -> bool:
    with Transaction(client) as reader:
        return reader.snapshot("txns", "t").write_ids.is_valid(write_id)

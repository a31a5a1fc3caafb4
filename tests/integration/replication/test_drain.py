"""Draining: which transactions a bootstrap waits for, and which it leaves alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import NoSuchObjectError, TransactionAbortedError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.progress.events import Event, TransactionsEnded, TransactionsOpen
from airflow_hive_federation.replication.dump.drain import begin_drain, drain, still_open
from tests.support.small_source import connected, make_table


@pytest.fixture(scope="module")
def client(source: EmbeddedMetastore) -> Iterator[MetastoreClient]:
    with connected(source) as client:
        for database in ("drained", "neighbour"):
            client.create_database(types.Database(name=database))
            make_table(client, database, "t")
        yield client


def begin_write(client: MetastoreClient, database: str) -> int:
    (txn_id,) = client.open_txns(1)
    client.allocate_table_write_ids(database, "t", [txn_id])
    return txn_id


def begin_lock(client: MetastoreClient, database: str, kind: types.LockType) -> int:
    (txn_id,) = client.open_txns(1)
    component = types.LockComponent(
        type=kind,
        level=types.LockLevel.TABLE,
        dbname=database,
        tablename="t",
        operationType=types.DataOperationType.UPDATE,
        isTransactional=True,
    )
    client.lock([component], txn_id=txn_id)
    return txn_id


def test_only_writers_of_the_database_are_waited_for(client: MetastoreClient) -> None:
    waited_for = [begin_write(client, "drained"), begin_lock(client, "drained", types.LockType.SHARED_WRITE)]
    ignored = [
        begin_write(client, "neighbour"),
        begin_lock(client, "neighbour", types.LockType.EXCL_WRITE),
        begin_lock(client, "drained", types.LockType.SHARED_READ),
        *client.open_txns(1),
    ]
    start = begin_drain(client, "drained")
    assert list(start.transactions) == waited_for
    later = begin_write(client, "drained")
    aborted = drain(client, start, timeout_s=0.3)
    assert list(aborted) == waited_for
    for txn_id in waited_for:
        with pytest.raises(TransactionAbortedError):
            client.commit_txn(txn_id)
    for txn_id in (*ignored, later):
        client.commit_txn(txn_id)


def test_an_end_is_noticed_and_nothing_is_aborted(source: EmbeddedMetastore, client: MetastoreClient) -> None:
    txn_id = begin_write(client, "drained")
    start = begin_drain(client, "drained")
    seen: list[Event] = []
    waits = threading.Event()

    def observe(event: Event) -> None:
        seen.append(event)
        waits.set()

    def commit() -> None:
        assert waits.wait(60)
        with connected(source) as other:
            other.commit_txn(txn_id)

    thread = threading.Thread(target=commit)
    thread.start()
    assert drain(client, start, timeout_s=60, observer=observe) == ()
    thread.join()
    assert set(seen[:-1]) == {TransactionsOpen(database="drained", transactions=(txn_id,))}
    assert seen[-1] == TransactionsEnded(database="drained")
    assert still_open(client, start) == ()


def test_an_aborted_transaction_is_not_waited_for(client: MetastoreClient) -> None:
    txn_id = begin_lock(client, "drained", types.LockType.SHARED_WRITE)
    client.abort_txns([txn_id])
    assert begin_drain(client, "drained").transactions == ()


def test_the_event_is_noted_before_the_transactions(client: MetastoreClient) -> None:
    event_id = client.get_current_notification_event_id()
    assert begin_drain(client, "drained").event_id == event_id


def test_a_missing_database_is_named(client: MetastoreClient) -> None:
    with pytest.raises(NoSuchObjectError, match="not_there"):
        begin_drain(client, "not_there")

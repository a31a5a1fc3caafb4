"""Guards of replication that need no server: each refuses what it is there for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import (
    CycleLostError,
    FailoverError,
    ReadTransactionLostError,
    StorageError,
    TargetChangedError,
    TransactionAbortedError,
    VerificationError,
    VerificationIncompleteError,
)
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.failover import reverse_policy
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.cycle_lock import CycleLock
from airflow_hive_federation.replication.replica.differences import Difference
from airflow_hive_federation.replication.verify.report import ReadFailure, VerificationReport
from airflow_hive_federation.transactions.heartbeat import Heartbeat
from airflow_hive_federation.transactions.lease import LeaseKeeper, lease_of_a_dump

POLICY = ReplicationPolicy(
    name="p", source_database="d", dump_root="file:/dumps", external_base="file:/replica"
)


def test_a_target_that_gives_out_other_write_ids_has_another_owner() -> None:
    """(The metastore does so for nobody but a load; a later version, or another product, may.)"""
    client: Any = SimpleNamespace(
        get_open_txns=lambda: SimpleNamespace(txn_high_water_mark=10),
        open_txns=lambda *_args, **_how: [11],
        heartbeat_txn_range=lambda *_range: SimpleNamespace(nosuch=()),
        allocate_table_write_ids=lambda *_args, **_how: {11: 6},
    )
    replay = Replay(client, POLICY)
    replay.open({"t": [(7, 5)]})
    with pytest.raises(TargetChangedError, match=r"Table d\.t .* gave write ids \[6\] .* source has \[5\]"):
        replay.allocate({"t": [(7, 5)]})


def test_external_tables_of_several_stores_have_no_way_back() -> None:
    def table(name: str, location: str) -> types.Table:
        storage = types.StorageDescriptor(location=location)
        return types.Table(dbName="d", tableName=name, tableType="EXTERNAL_TABLE", sd=storage)

    tables = [table("a", "s3a://one/a"), table("b", "s3a://two/b")]

    @contextmanager
    def connected() -> Iterator[Any]:
        yield SimpleNamespace(
            list_tables=lambda _database: ["a", "b"],
            get_tables=lambda _database, _names: tables,
        )

    pool: Any = SimpleNamespace(client=connected)
    with pytest.raises(FailoverError, match="lie in several stores: s3://one/, s3://two/"):
        reverse_policy(pool, POLICY)
    # Hadoop has a driver for the spelling of the tables, and perhaps none for another one of the same store.
    tables[1] = table("b", "s3n://one/b")
    for _ in range(2):
        assert reverse_policy(pool, POLICY).external_base == "s3n://one/"
        tables.reverse()  # A metastore returns them in any order.
    del tables[1]
    assert reverse_policy(pool, POLICY).external_base == "s3a://one/"


def test_a_lock_that_was_released_allows_nothing() -> None:
    lock = CycleLock(pool(), POLICY)
    for ask in (
        lock.check,
        lock.prove,
        lambda: lock.allow("add_partitions"),
        lambda: lock.allow("drop_table"),
    ):
        with pytest.raises(CycleLostError, match="it was released, and something went on") as lost:
            ask()
        assert lost.value.facts["reason"] == "released"


def test_a_read_transaction_that_the_source_has_ended_keeps_nothing() -> None:
    keeper = LeaseKeeper(pool(), 7)
    for answer in ({"aborted": {7}}, {"nosuch": {7}}):
        client: Any = SimpleNamespace(
            heartbeat_txn_range=lambda *_, ranges=answer: SimpleNamespace(
                **{"aborted": None, "nosuch": None, **ranges}
            )
        )
        with pytest.raises(ReadTransactionLostError, match="has ended read transaction 7"):
            keeper._beat(client)
    keeper._heart.give_up(TransactionAbortedError("The source has ended read transaction 7."))
    with pytest.raises(
        ReadTransactionLostError, match="Files may have been removed while they were listed"
    ) as lost:
        keeper.check()
    assert lost.value.retryable  # Airflow's next try opens another transaction, and lists anew.


def test_a_dump_that_fails_raises_and_ends_its_read_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(Heartbeat, "start", lambda heart, **_: heart)
    with pytest.raises(StorageError, match="the store is full"), lease_of_a_dump(pool(ended), policy="p"):
        raise StorageError("the store is full")
    assert ended == [7]


def test_rows_that_cannot_be_read_fail_a_verification() -> None:
    unread = ReadFailure(table="t", side="target", reason="file:/t/f is damaged")
    report = VerificationReport(database="d", event_id=7, tables=[], failures=[unread])
    with pytest.raises(VerificationIncompleteError, match="file:/t/f is damaged") as failed:
        report.raise_if_different()
    assert failed.value.facts["failures"] == [str(unread)]
    different = replace(report, differences=[Difference(table="t", what="rows", expected="1", found="2")])
    with pytest.raises(VerificationError, match=r"1 place\(s\)[\s\S]*file:/t/f is damaged"):
        different.raise_if_different()


def pool(ended: list[int] | None = None) -> Any:
    """Connections to a metastore that opens transaction 7, and notes which ones are committed."""

    @contextmanager
    def connected() -> Iterator[Any]:
        yield SimpleNamespace(
            open_txns=lambda *_, **__: [7], commit_txn=([] if ended is None else ended).append
        )

    return SimpleNamespace(client=connected, settings=MetastoreSettings(uris=("thrift://127.0.0.1:1",)))

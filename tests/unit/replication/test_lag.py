"""Counts the events that a target lacks, by a log in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pytest

from airflow_hive_federation.errors import StorageError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication import status
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.manifest import OpenWrites
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.status import _Counted, _open_at

POLICY = ReplicationPolicy(name="p", source_database="shop", dump_root="/dumps")
#: Transaction 3 had a write id of ``shop.t``, and 4 of ``shop.t`` and ``shop.u``, at the target's position.
OPEN: OpenWrites = {3: {"t": 7}, 4: {"t": 8, "u": 1}}


class Log:
    """A source with these events after the target's position."""

    def __init__(self, *events: tuple[str, Mapping[str, object]]) -> None:
        self.events = [
            types.NotificationEvent(
                eventId=10 + number,
                eventTime=1,
                eventType=kind,
                dbName="shop" if kind.startswith("ALLOC") else None,
                tableName="v" if kind.startswith("ALLOC") else None,
                message=json.dumps(message),
                messageFormat="json-0.2",
            )
            for number, (kind, message) in enumerate(events, start=1)
        ]

    def get_current_notification_event_id(self) -> int:
        return 10 + len(self.events)

    def iter_notification_events(self, after: int) -> Iterator[types.NotificationEvent]:
        assert after == 10
        yield from self.events


def counted(*events: tuple[str, Mapping[str, object]], reads: list[int] | None = None) -> dict[str, int]:
    """The number of events of the whole database (by the empty name), and of each table."""

    def open_at() -> OpenWrites:
        if reads is not None:
            reads.append(1)
        return OPEN

    lags = _Counted.read(cast("MetastoreClient", Log(*events)), POLICY, 10, open_at).lags(10)
    return {"": lags.total.events} | {name: lag.events for name, lag in lags.tables.items()}


def opened(txn: int) -> tuple[str, Mapping[str, object]]:
    return "OPEN_TXN", {"txnIds": [txn]}


def ended(txn: int, kind: str = "COMMIT_TXN") -> tuple[str, Mapping[str, object]]:
    return kind, {"txnid": txn}


def allocated(txn: int) -> tuple[str, Mapping[str, object]]:
    return "ALLOC_WRITE_ID_EVENT", {"txnIdList": [txn], "writeIdList": [9]}


def test_a_commit_counts_whose_write_ids_the_target_has_already_seen() -> None:
    assert counted(ended(3)) == {"": 1, "t": 1}
    assert counted(ended(4, "ABORT_TXN"), ended(3)) == {"": 2, "t": 2, "u": 1}
    # A transaction of the target's position that takes one more write id.
    assert counted(allocated(3), ended(3)) == {"": 2, "t": 1, "v": 2}


def test_ends_of_other_databases_do_not_count() -> None:
    assert counted(ended(2), opened(8), ended(8)) == {"": 0}


def test_the_dump_is_read_once_and_only_for_transactions_that_began_before() -> None:
    reads: list[int] = []
    assert counted(opened(8), allocated(8), ended(8), opened(9), ended(9), reads=reads) == {"": 2, "v": 2}
    assert reads == []
    counted(opened(8), ended(2), ended(3), ended(4), reads=reads)
    assert reads == [1]


def test_a_dump_that_cannot_be_read_leaves_its_transactions_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unreadable(_: Any) -> Sequence[object]:
        raise StorageError("The store is away.", remedy="Wait.", path="file:/dumps/1")

    monkeypatch.setattr(status, "loaded_dump", lambda *_: "file:/dumps/1")
    monkeypatch.setattr(DumpDirectory, "manifest", unreadable)
    assert _open_at(cast("MetastoreClient", None), POLICY)() == {}
    assert "are left out of its lag: The store is away." in caplog.text

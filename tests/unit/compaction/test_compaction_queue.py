"""The compaction queue and the transactions of a metastore, read at one moment."""

from __future__ import annotations

from airflow_hive_federation.compaction.queue import WaitingRequest, look_of
from airflow_hive_federation.metastore.idl import types

MAJOR, MINOR = types.CompactionType.MAJOR, types.CompactionType.MINOR


def request(
    state: str, *, table: str = "t", enqueued_ms: int | None = None
) -> types.ShowCompactResponseElement:
    return types.ShowCompactResponseElement(
        dbname="d", tablename=table, partitionname=None, type=MAJOR, state=state, enqueueTime=enqueued_ms
    )


def test_requests_that_are_not_served_wait_and_all_are_counted() -> None:
    look = look_of(
        [
            request("initiated", table="b", enqueued_ms=2_000),
            request("working", table="a", enqueued_ms=1_000),
            request("succeeded"),
            request("succeeded"),
            request("failed"),
        ],
        [],
    )
    assert look.states == {"initiated": 1, "working": 1, "succeeded": 2, "failed": 1}
    assert list(look.waiting) == [
        WaitingRequest(table="d.a", partition="", kind="major", state="working", since_s=1.0),
        WaitingRequest(table="d.b", partition="", kind="major", state="initiated", since_s=2.0),
    ]


def test_a_metastore_that_keeps_no_times_has_none() -> None:
    (waiting,) = look_of([request("initiated")], []).waiting
    assert waiting.since_s is None


def test_open_transactions_are_told_from_aborted_ones() -> None:
    look = look_of(
        [],
        [
            types.TxnInfo(id=1, state=types.TxnState.OPEN, startedTime=5_000, lastHeartbeatTime=9_000),
            types.TxnInfo(id=2, state=types.TxnState.OPEN, startedTime=4_000, lastHeartbeatTime=9_500),
            types.TxnInfo(id=3, state=types.TxnState.ABORTED, startedTime=1_000, lastHeartbeatTime=1_000),
        ],
    )
    assert (look.open_txns, look.aborted_txns) == (2, 1)
    assert (look.oldest_open_s, look.oldest_heartbeat_s) == (4.0, 9.0)

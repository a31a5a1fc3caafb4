"""Looks at a metastore's compaction queue and at its open transactions, without a change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types

#: States of requests that are not served yet (``TxnStore.INITIATED_RESPONSE``, ``WORKING_RESPONSE``).
_UNSERVED = frozenset({"initiated", "working"})
_KINDS = {types.CompactionType.MAJOR: "major", types.CompactionType.MINOR: "minor"}


@dataclass(frozen=True, kw_only=True)
class WaitingRequest:
    """A request that waits for a worker, or that one works on.

    :param table: ``database.table``.
    :param partition: the partition's name; empty for a table without partitions.
    :param kind: ``major``, ``minor`` or another kind of Hive's.
    :param state: Hive's name of the state.
    :param since_s: the time of the request, in seconds since 1970; ``None`` if the metastore keeps none.
    """

    table: str
    partition: str
    kind: str
    state: str
    since_s: float | None


@dataclass(frozen=True, kw_only=True)
class QueueLook:
    """The state of a metastore's compaction queue and transactions at one moment.

    :param states: number of requests per state, finished ones included.
    :param waiting: the requests that are not served yet, oldest first.
    :param open_txns: number of open transactions.
    :param aborted_txns: number of aborted transactions whose rows are not cleaned yet.
    :param oldest_open_s: the time at which the oldest open one began, in seconds since 1970.
    :param oldest_heartbeat_s: the earliest last heartbeat of the open ones.
    """

    states: Mapping[str, int]
    waiting: Sequence[WaitingRequest]
    open_txns: int = 0
    aborted_txns: int = 0
    oldest_open_s: float | None = None
    oldest_heartbeat_s: float | None = None


def look_at_queue(client: MetastoreClient) -> QueueLook:
    """Return the state of the queue and of the transactions."""
    entries: list[types.ShowCompactResponseElement] = (
        client.call("show_compact", types.ShowCompactRequest()).compacts or []
    )
    txns: list[types.TxnInfo] = client.call("get_open_txns_info").open_txns or []
    return look_of(entries, txns)


def look_of(entries: Sequence[types.ShowCompactResponseElement], txns: Sequence[types.TxnInfo]) -> QueueLook:
    """Return the state that a metastore's answers describe. Pure."""
    waiting = [_request(entry) for entry in entries if entry.state in _UNSERVED]
    opened = [txn for txn in txns if txn.state == types.TxnState.OPEN]
    return QueueLook(
        states=dict(Counter(str(entry.state) for entry in entries)),
        waiting=sorted(waiting, key=lambda request: request.since_s or 0.0),
        open_txns=len(opened),
        aborted_txns=len(txns) - len(opened),
        oldest_open_s=min(
            (seconds for txn in opened if (seconds := _seconds(txn.startedTime))), default=None
        ),
        oldest_heartbeat_s=min(
            (seconds for txn in opened if (seconds := _seconds(txn.lastHeartbeatTime))), default=None
        ),
    )


def _request(entry: types.ShowCompactResponseElement) -> WaitingRequest:
    kind = types.CompactionType(entry.type) if entry.type is not None else None
    return WaitingRequest(
        table=f"{entry.dbname}.{entry.tablename}",
        partition=entry.partitionname or "",
        kind="" if kind is None else _KINDS.get(kind, kind.name.lower()),
        state=str(entry.state),
        since_s=_seconds(entry.enqueueTime or entry.start),
    )


def _seconds(milliseconds: int | None) -> float | None:
    return milliseconds / 1000 if milliseconds else None

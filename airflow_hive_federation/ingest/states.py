"""Defines the states of a streaming connection and the legal calls of each state, without any I/O.

docs/streaming-ingest.md has the diagram. As in Hive's ``HiveStreamingConnection``, a batch that failed
accepts no more records, since its files may end in the middle of a row; ``abort_transaction`` then has no
effect, so that a caller's clean-up does not hide the first error. One rule is stricter: Hive's
``beginTransaction`` inside an open transaction drops that transaction's records silently; here it is
refused.
"""

from __future__ import annotations

from enum import StrEnum

from airflow_hive_federation.ingest.errors import InvalidTransactionState


class ConnectionState(StrEnum):
    """The state of a connection (Hive's ``TxnState`` is INACTIVE, OPEN, COMMITTED or ABORTED)."""

    READY = "ready"
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    FAILED = "failed"
    CLOSED = "closed"


class Call(StrEnum):
    """A call of a streaming connection."""

    BEGIN = "begin_transaction"
    WRITE = "write"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
    COMPACT = "request_compaction"
    CLOSE = "close"


class Outcome(StrEnum):
    """An event of a streaming connection that no caller asks for."""

    NOT_BEGUN = "transaction not begun"
    LOST = "transaction lost, or file not written"
    ABORTED = "aborted in the metastore"


_READY, _OPEN, _COMMITTED, _ABORTED, _FAILED, _CLOSED = ConnectionState

_IDLE = (_READY, _COMMITTED, _ABORTED)

TRANSITIONS: dict[tuple[ConnectionState, Call | Outcome], ConnectionState] = {
    **{(state, Call.BEGIN): _OPEN for state in _IDLE},
    **{(state, Outcome.NOT_BEGUN): _FAILED for state in _IDLE},
    (_OPEN, Call.WRITE): _OPEN,
    (_OPEN, Call.COMMIT): _COMMITTED,
    (_OPEN, Call.ABORT): _ABORTED,
    (_FAILED, Call.ABORT): _FAILED,
    (_FAILED, Outcome.ABORTED): _ABORTED,
    **{(state, Call.COMPACT): state for state in _IDLE},
    **{(state, Call.CLOSE): _CLOSED for state in ConnectionState},
    **{(state, Outcome.LOST): state for state in ConnectionState},
    (_OPEN, Outcome.LOST): _FAILED,
}

_REMEDIES = {
    _CLOSED: "Connect again.",
    _FAILED: "Close the connection, connect again, and send the records of the transaction again.",
    _OPEN: "Commit or abort the open transaction first.",
}


def after(state: ConnectionState, event: Call | Outcome) -> ConnectionState:
    """Return the state after an outcome, or after a call that succeeds.

    :raises InvalidTransactionState: the call is not legal in this state.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InvalidTransactionState(
            f"{event} is not legal: the connection is {_described(state)}.",
            remedy=_REMEDIES.get(state, "Call begin_transaction first."),
            state=str(state),
        ) from None


def _described(state: ConnectionState) -> str:
    if state is _OPEN:
        return "inside a transaction"
    return f"{state}" if state in {_CLOSED, _FAILED} else "not inside a transaction"

"""Defines the states of a streaming connection and the legal calls of each state, without any I/O.

::

              begin            write · flush          commit / abort
    READY ───────────▶ OPEN ◀──────────────▶ OPEN ───────────────────▶ COMMITTED / ABORTED ──begin──▶ OPEN
                        │
                        │ a lost transaction, or a file that could not be written
                        ▼
                      FAILED ──abort──▶ FAILED
    (any) ──close──▶ CLOSED ──close──▶ CLOSED

As in Hive's ``HiveStreamingConnection``, a batch that failed accepts no more records, since its files may
end in the middle of a row; ``abort_transaction`` then has no effect, so that a caller's clean-up does not
hide the first error. One rule is stricter: Hive's ``beginTransaction`` inside an open transaction drops that
transaction's records silently; here it is refused.
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


_READY, _OPEN, _COMMITTED, _ABORTED, _FAILED, _CLOSED = ConnectionState

TRANSITIONS: dict[tuple[ConnectionState, Call], ConnectionState] = {
    (_READY, Call.BEGIN): _OPEN,
    (_COMMITTED, Call.BEGIN): _OPEN,
    (_ABORTED, Call.BEGIN): _OPEN,
    (_OPEN, Call.WRITE): _OPEN,
    (_OPEN, Call.COMMIT): _COMMITTED,
    (_OPEN, Call.ABORT): _ABORTED,
    (_FAILED, Call.ABORT): _FAILED,
    **{(state, Call.COMPACT): state for state in (_READY, _COMMITTED, _ABORTED)},
    **{(state, Call.CLOSE): _CLOSED for state in ConnectionState},
}

_REMEDIES = {
    _CLOSED: "Connect again.",
    _FAILED: "Close the connection, connect again, and send the records of the transaction again.",
    _OPEN: "Commit or abort the open transaction first.",
}


def after(state: ConnectionState, call: Call) -> ConnectionState:
    """Return the state after a call that succeeds.

    :raises InvalidTransactionState: the call is not legal in this state.
    """
    try:
        return TRANSITIONS[state, call]
    except KeyError:
        raise InvalidTransactionState(
            f"{call} is not legal: the connection is {_described(state)}.",
            remedy=_REMEDIES.get(state, "Call begin_transaction first."),
            state=str(state),
        ) from None


def _described(state: ConnectionState) -> str:
    if state is _OPEN:
        return "inside a transaction"
    return f"{state}" if state in {_CLOSED, _FAILED} else "not inside a transaction"

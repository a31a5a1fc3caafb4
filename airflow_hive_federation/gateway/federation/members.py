"""Calls the metastores of a federation, each with its own deadline, and a circuit breaker for hung ones."""

from __future__ import annotations

from dataclasses import replace

from airflow_hive_federation.catalog.breaker import CircuitBreaker
from airflow_hive_federation.errors import (
    HiveFederationError,
    MetastoreTimeoutError,
    MetastoreUnreachableError,
    OutcomeUnknownError,
)
from airflow_hive_federation.gateway.dispatch import Metastore
from airflow_hive_federation.gateway.handler import Call, Status, status_of
from airflow_hive_federation.gateway.messages import Emit

#: Statuses that do not show whether the metastore answers: a cancelled call, all connections in use, or a
#: call that the gateway does not send.
_SAYS_NOTHING = frozenset({Status.CANCELLED, Status.EXHAUSTED, Status.INVALID, Status.UNAUTHENTICATED})


class Member:
    """One metastore of a federation.

    :param name: name of the metastore in errors, logs and metrics.
    :param target: sends calls to the metastore.
    :param timeout_s: seconds that the metastore has for a whole answer; ``None`` takes the caller's deadline.
    :param writable: clients may write to the metastore through the gateway.
    """

    def __init__(
        self, name: str, target: Metastore, *, timeout_s: float | None = None, writable: bool = False
    ) -> None:
        self.name = name
        self.target = target
        self.timeout_s = timeout_s
        self.writable = writable
        self._breaker = CircuitBreaker(name)

    def relay(self, call: Call, emit: Emit, timeout_s: float | None = None) -> None:
        """Send a call to the metastore, and pass its answer to ``emit``.

        :param timeout_s: seconds for this call, if they are fewer than the member's own.
        :raises RemoteUnavailableError: the metastore did not answer within its deadline, or the circuit
            breaker is open after recent failures.
        :raises HiveFederationError: as :meth:`..dispatch.Target.relay`.
        """
        if self.timeout_s is None:
            self.target.relay(call, emit)
            return
        limit_s = self.timeout_s if timeout_s is None else min(timeout_s, self.timeout_s)
        try:
            patience = call.deadline.remaining_s()
            inner = replace(call, deadline=call.deadline.sooner(limit_s))
        except TimeoutError as error:
            raise MetastoreTimeoutError(
                f"{call.method} at {self.name}: {error}",
                remedy="Give the call more time.",
                method=call.method,
            ) from error
        passing = _Passing(emit)
        try:
            with self._breaker.guard():
                try:
                    self.target.relay(inner, passing)
                except HiveFederationError as error:
                    # A caller with a shorter deadline than the member's, or one that reads slowly, must not
                    # open the circuit for others.
                    hasty = patience < limit_s and _ran_out_of_time(error, inner)
                    if passing.began or hasty or status_of(error) in _SAYS_NOTHING:
                        raise _Undecided(error) from error
                    raise
        except _Undecided as undecided:
            raise undecided.error from undecided.error.__cause__

    def ask(self, call: Call, timeout_s: float | None = None) -> bytes:
        """Return the whole answer to a call; raises as :meth:`relay`."""
        parts: list[bytes] = []
        self.relay(call, parts.append, timeout_s)
        return b"".join(parts)


def _ran_out_of_time(error: HiveFederationError, call: Call) -> bool:
    """Return whether a call failed at its deadline: the connection, too, is part of its time."""
    if isinstance(error, MetastoreTimeoutError):
        return True
    try:
        call.deadline.remaining_s()
    except TimeoutError:
        return isinstance(error, MetastoreUnreachableError | OutcomeUnknownError)
    return False


class _Undecided(Exception):  # noqa: N818 - passes by the breaker, which counts errors of the metastore
    def __init__(self, error: HiveFederationError) -> None:
        super().__init__(str(error))
        self.error = error


class _Passing:
    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.began = False

    def __call__(self, piece: bytes) -> None:
        self.began = True
        self._emit(piece)

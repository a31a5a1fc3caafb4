"""Metastores of a federation: each with its own deadline, and a breaker that spares callers a hung one."""

from __future__ import annotations

from dataclasses import replace

from airflow_hive_federation.catalog.breaker import CircuitBreaker
from airflow_hive_federation.errors import HiveFederationError, MetastoreTimeoutError
from airflow_hive_federation.gateway.dispatch import Call, Metastore
from airflow_hive_federation.gateway.handler import Status, status_of
from airflow_hive_federation.gateway.messages import Emit

#: The caller gave up, or all connections were in use: nobody learns whether the metastore answers.
_SAYS_NOTHING = frozenset({Status.CANCELLED, Status.EXHAUSTED})


class Member:
    """One metastore of a federation.

    :param name: names it in errors, logs and metrics.
    :param target: the way there.
    :param timeout_s: seconds that it has for a whole answer; ``None`` is as long as the caller waits.
    :param writable: clients may write there through the gateway.
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
        """Have a call answered.

        :param timeout_s: seconds for this call, if they are fewer than its own.
        :raises RemoteUnavailableError: it did not answer within its deadline, or has not lately.
        :raises HiveFederationError: as :meth:`..dispatch.Target.relay`.
        """
        if self.timeout_s is None:
            self.target.relay(call, emit)
            return
        most = self.timeout_s if timeout_s is None else min(timeout_s, self.timeout_s)
        try:
            patience = call.deadline.remaining_s()
            inner = replace(call, deadline=call.deadline.sooner(most))
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
                    # A caller that waits shorter than it should, or reads slowly, must not open the circuit
                    # for others.
                    hasty = isinstance(error, MetastoreTimeoutError) and patience < most
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

"""Fails calls to a remote that is down at once, so that no caller waits for its deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_hive_federation.errors import (
    HiveFederationError,
    MetastoreProtocolError,
    OutcomeUnknownError,
    RemoteError,
    RemoteUnavailableError,
    TunnelError,
)

#: These errors do not come from the remote itself, although a retry does not help.
_OF_THE_WAY = (MetastoreProtocolError, TunnelError)


class CircuitBreaker:
    """A circuit breaker, which refuses calls to a remote for a while after too many failures in a row.

    After the pause, one call tries the remote while others are still refused: if the remote hangs, only that
    call waits. An answer to it ends the refusals, and a failure begins another pause. If it ends without
    either, as a cancelled call does, the next call tries the remote. If it lasts as long as a pause, another
    call tries it, too.

    An answer is not a failure, even if it refuses the call: it shows that the remote is up. Guards of one
    breaker are not nested: the inner one would be refused while the outer one tries the remote.

    :param remote: name of the remote, for errors.
    :param failures: number of failures in a row that open the circuit.
    :param pause_s: seconds until the remote is called again.
    """

    def __init__(
        self,
        remote: str,
        *,
        failures: int = 3,
        pause_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.remote = remote
        self._failures = failures
        self._pause_s = pause_s
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0
        #: Time from which on a call may try the remote; ``None`` while the circuit is closed.
        self._next_try: float | None = None
        self._trying = False
        #: Number of changes between closed, open and tried. Failures of calls from before do not count.
        self._turn = 0

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Guard the calls to the remote within this context.

        :raises RemoteUnavailableError: if the remote does not answer, or the circuit is open.
        :raises OutcomeUnknownError: if the remote does not answer a call that writes.
        :raises RemoteError: if another service answers at its address, or a tunnel refuses the connection.
        """
        turn = self._admit()
        end: Callable[[int], None] = self._without_outcome
        try:
            yield
            end = self._answered
        except RemoteUnavailableError:
            raise
        except OutcomeUnknownError:
            # It stays what it is: the remote may have done what a call that writes wanted.
            end = self._failed
            raise
        except HiveFederationError as error:
            if not isinstance(error, _OF_THE_WAY) and not error.retryable:
                end = self._answered
                raise
            end = self._failed
            if not error.retryable:
                raise RemoteError(
                    f"Remote {self.remote}: {error.message}", remedy=error.remedy, remote=self.remote
                ) from error
            raise RemoteUnavailableError(
                f"Remote {self.remote} does not answer: {error.message}",
                remedy=error.remedy or "Look at the remote.",
                remote=self.remote,
            ) from error
        finally:
            end(turn)

    def _admit(self) -> int:
        with self._lock:
            if self._next_try is None:
                return self._turn
            now = self._clock()
            if (left := self._next_try - now) <= 0:
                self._next_try = now + self._pause_s
                self._trying = True
                self._turn += 1
                return self._turn
            trying = self._trying
        when = " at the latest, after one that runs now" if trying else ""
        raise RemoteUnavailableError(
            f"Remote {self.remote} did not answer {self._failures} times in a row; its next call is in "
            f"{left:.0f} s{when}.",
            remedy="Look at the remote. Others are not touched.",
            remote=self.remote,
        )

    def _answered(self, _turn: int) -> None:
        with self._lock:
            self._count = 0
            if self._next_try is not None:
                self._next_try, self._trying = None, False
                self._turn += 1

    def _failed(self, turn: int) -> None:
        with self._lock:
            if turn != self._turn:
                return
            self._count += 1
            if self._trying or self._count >= self._failures:
                self._count = 0
                self._next_try, self._trying = self._clock() + self._pause_s, False
                self._turn += 1

    def _without_outcome(self, turn: int) -> None:
        with self._lock:
            if self._trying and turn == self._turn:
                self._next_try, self._trying = self._clock(), False

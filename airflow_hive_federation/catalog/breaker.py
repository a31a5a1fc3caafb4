"""Fails calls to a remote that is down at once, so that no caller waits for its deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_hive_federation.errors import (
    HiveFederationError,
    MetastoreProtocolError,
    RemoteError,
    RemoteUnavailableError,
    TunnelError,
)

#: These errors do not come from the remote itself, although a retry does not help.
_OF_THE_WAY = (MetastoreProtocolError, TunnelError)


class CircuitBreaker:
    """A circuit breaker, which refuses calls to a remote for a while after too many failures in a row.

    An answer is not a failure, even if it refuses the call: it shows that the remote is up.

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
        self._open_until = 0.0

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Guard the calls to the remote within this context.

        :raises RemoteUnavailableError: if the remote does not answer, or the circuit is open.
        :raises RemoteError: if another service answers at its address, or a tunnel refuses the connection.
        """
        with self._lock:
            left = self._open_until - self._clock()
        if left > 0:
            raise RemoteUnavailableError(
                f"Remote {self.remote} did not answer {self._failures} times in a row; its next call is in "
                f"{left:.0f} s.",
                remedy="Look at the remote. Others are not touched.",
                remote=self.remote,
            )
        try:
            yield
        except RemoteUnavailableError:
            raise
        except HiveFederationError as error:
            if not isinstance(error, _OF_THE_WAY) and not error.retryable:
                self._answered()
                raise
            self._failed()
            if not error.retryable:
                raise RemoteError(
                    f"Remote {self.remote}: {error.message}", remedy=error.remedy, remote=self.remote
                ) from error
            raise RemoteUnavailableError(
                f"Remote {self.remote} does not answer: {error.message}",
                remedy=error.remedy or "Look at the remote.",
                remote=self.remote,
            ) from error
        self._answered()

    def _answered(self) -> None:
        with self._lock:
            self._count = 0

    def _failed(self) -> None:
        with self._lock:
            self._count += 1
            if self._count >= self._failures:
                self._count = 0
                self._open_until = self._clock() + self._pause_s

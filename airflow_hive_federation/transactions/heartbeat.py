"""Sends heartbeats for a lock or a transaction, and detects its loss before another process may take it.

A metastore ends a lock or a transaction if its holder has been silent for too long. So the holder measures
its own silence: its hold is lost once the last heartbeat that the metastore has confirmed is older than
``silence_s``, a limit that is shorter than the timeout of the metastore and of other processes. This works
without any further condition: an error of any class, a call that hangs, a dead thread and a suspended process
all have the same effect, no confirmed heartbeat and a growing age.

The age is measured from the time when a heartbeat was *sent*, because the metastore may have recorded it at
that time and answered late. The clock includes the time during which a machine was suspended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from airflow_hive_federation.errors import (
    InvalidOperationError,
    NoSuchLockError,
    NoSuchTransactionError,
    TransactionAbortedError,
)
from airflow_hive_federation.metastore.client import MetastoreClient
from airflow_hive_federation.metastore.settings import MetastoreSettings
from airflow_hive_federation.runtime.durations import parse_duration_s
from airflow_hive_federation.waiting import boot_time_s

log = logging.getLogger(__name__)

#: Share of ``hive.txn.timeout`` after which the holder of a transaction considers it lost.
SILENCE_SHARE = 0.9
#: Errors by which the metastore reports that the lock or transaction does not exist any more.
FINAL_ANSWERS = (NoSuchLockError, NoSuchTransactionError, TransactionAbortedError)
#: Number of heartbeats that can fail by their deadline before the silence is too long.
_TRIES = 6
_DEFAULT_TIMEOUT_S = 300.0
#: Longest deadline of a heartbeat in seconds, even if the permitted silence is long.
_LONGEST_CALL_S = 20.0


class LossReason(StrEnum):
    """The reason why a lock or a transaction counts as lost."""

    REFUSED = "refused"  # the metastore answers that it does not exist any more
    SILENT = "silent"  # no heartbeat was confirmed for too long


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The loss of a lock or a transaction.

    :param silent_s: seconds since the last confirmed heartbeat was sent.
    :param cause: the metastore's answer, or the error of the last failed heartbeat; ``None`` if no heartbeat
        has failed.
    """

    reason: LossReason
    silent_s: float
    cause: Exception | None = None

    @property
    def description(self) -> str:
        """Return the description of the loss, as a part of a sentence."""
        if self.reason is LossReason.REFUSED:
            return f"the metastore has ended it ({self.cause})"
        why = f"; the last one failed with {type(self.cause).__name__}: {self.cause}" if self.cause else ""
        return f"no heartbeat was confirmed for {self.silent_s:.1f} s{why}"


class Heartbeat:
    """Sends heartbeats from a thread with a connection of its own, until :meth:`stop`.

    A loss is final: a heartbeat that the metastore confirms after too long a silence does not undo it.

    :param settings: settings of the metastore. The heartbeat shortens the connection's deadlines, so that a
        call that hangs leaves time for other calls within ``silence_s``.
    :param beat: sends one heartbeat over the given client, and raises an error if the metastore does not
        confirm it: one of :data:`FINAL_ANSWERS` if the lock or transaction does not exist any more.
    :param name: name of the lock or transaction in messages and of the thread: ``lock 7``.
    :param interval_s: seconds between two heartbeats.
    :param silence_s: seconds without a confirmed heartbeat after which the hold is lost; less than the
        timeout of the metastore, or of any other process that may take over.
    :param since_s: time (of ``clock``) before the lock or transaction was requested: start of the age.
    :param on_loss: receives the loss, once, in the thread that detects it first.
    :param clock: returns the seconds of a clock that never goes back.
    """

    def __init__(
        self,
        settings: MetastoreSettings,
        beat: Callable[[MetastoreClient], None],
        *,
        name: str,
        interval_s: float,
        silence_s: float,
        since_s: float | None = None,
        on_loss: Callable[[Loss], None] = lambda _: None,
        clock: Callable[[], float] = boot_time_s,
    ) -> None:
        self._deadline_s = min(silence_s / _TRIES, _LONGEST_CALL_S)
        self._client = MetastoreClient(
            replace(
                settings,
                connect_timeout_s=min(settings.connect_timeout_s, self._deadline_s),
                call_timeout_s=min(settings.call_timeout_s, self._deadline_s),
            )
        )
        self._beat = beat
        self._name = name
        self._interval_s = interval_s
        self._retry_s = min(interval_s, silence_s / 10)
        self._silence_s = silence_s
        self._on_loss = on_loss
        self._clock = clock
        self._confirmed_s = clock() if since_s is None else since_s
        self._failure: Exception | None = None
        self._loss: Loss | None = None
        self._at_once = False
        self._state = threading.Lock()
        self._connection = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"heartbeat of {name}", daemon=True)

    def start(self, *, at_once: bool = False) -> Self:
        """Start to send heartbeats.

        :param at_once: send the first one now instead of after ``interval_s``.
        """
        self._at_once = at_once
        self._thread.start()
        return self

    def stop(self) -> None:
        """Send no more heartbeats, and wait for a pending one until its deadline."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=self._deadline_s + 1.0)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def age_s(self) -> float:
        """Return the seconds since the last confirmed heartbeat was sent."""
        return self._clock() - self._confirmed_s

    @property
    def loss(self) -> Loss | None:
        """Return the loss, according to the present age; ``None`` while the hold is valid."""
        if self._loss is None and self.age_s > self._silence_s:
            self._lose(LossReason.SILENT, self._failure)
        return self._loss

    def prove(self, *, fresh_s: float = 0.0) -> Loss | None:
        """Have the metastore confirm the hold now; return the loss if the hold is lost.

        If the metastore does not answer, the method repeats the heartbeat until the hold is lost by silence.

        :param fresh_s: age in seconds up to which the last confirmed heartbeat suffices.
        """
        if self.age_s < fresh_s:
            return self.loss
        while self.loss is None and not self.send():
            # A refusal is final, and nothing to wait for.
            if self.loss is None:
                self._stopped.wait(self._retry_s)
        return self.loss

    def send(self) -> bool:
        """Send one heartbeat; return whether the metastore confirmed it in time."""
        with self._connection:
            if self.loss is not None:
                return False
            sent_s = self._clock()
            try:
                self._beat(self._client)
            except FINAL_ANSWERS as error:
                self._lose(LossReason.REFUSED, error)
            except Exception as error:  # noqa: BLE001 - any error ends in a loss unless the next beat succeeds
                self._failure = error
                log.warning("The heartbeat of %s failed: %s: %s", self._name, type(error).__name__, error)
            else:
                # An answer after too long a silence is too late: another process may have taken over.
                if self.loss is None:
                    self._confirmed_s, self._failure = sent_s, None
                    return True
        return False

    @contextmanager
    def client(self) -> Iterator[MetastoreClient]:
        """Lend the connection for a call that concerns the hold; the thread sends no heartbeat meanwhile."""
        with self._connection:
            yield self._client

    def give_up(self, cause: Exception) -> None:
        """Declare the hold lost for a reason that the heartbeats cannot detect."""
        self._lose(LossReason.REFUSED, cause)

    def _run(self) -> None:
        pause_s = 0.0 if self._at_once else self._interval_s
        while not self._stopped.wait(min(pause_s, max(0.0, self._silence_s - self.age_s) + 0.001)):
            if self.loss is not None:
                break
            if self.age_s < pause_s:
                continue
            pause_s = self._interval_s if self.send() else self._retry_s
        with self._connection:
            self._client.close()

    def _lose(self, reason: LossReason, cause: Exception | None) -> None:
        with self._state:
            if self._loss is not None:
                return
            self._loss = loss = Loss(reason=reason, silent_s=self.age_s, cause=cause)
        if not self._stopped.is_set():  # otherwise the holder has released it meanwhile
            log.warning("%s is lost: %s", self._name, loss.description)
            self._on_loss(loss)


def transaction_timeout_s(client: MetastoreClient) -> float:
    """Return the seconds of silence after which Hive ends a transaction or a lock (``hive.txn.timeout``)."""
    default = f"{_DEFAULT_TIMEOUT_S:.0f}s"
    try:
        timeout = client.get_config_value("metastore.txn.timeout", default)
    except InvalidOperationError:
        return _DEFAULT_TIMEOUT_S  # Hive 2 returns only settings whose names begin with "hive."
    return parse_duration_s(timeout) or _DEFAULT_TIMEOUT_S

"""Heartbeats: the holder of a lock or a transaction learns that it is lost before others may take it.

A metastore gives a lock or a transaction away when its holder has been silent for too long. So the holder
counts its own silence, and believes in nothing else: its hold is lost once the last heartbeat that the
metastore has confirmed is older than ``silence_s``. This bound is shorter than the patience of the others.
Nothing has to work for it. An error of any class, a call that hangs, a thread that has died and a process
that was suspended all come to the same: no confirmed heartbeat, and an age that grows.

The age is measured from when a heartbeat was *sent*, for the metastore may have noted it at that moment and
answered late. The clock counts the time for which a machine was suspended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from types import TracebackType
from typing import Self

from airflow_hive_federation.errors import (
    InvalidOperationError,
    NoSuchLockError,
    NoSuchTransactionError,
    TransactionAbortedError,
)
from airflow_hive_federation.metastore.client import MetastoreClient
from airflow_hive_federation.metastore.doctor import parse_duration_s
from airflow_hive_federation.metastore.settings import MetastoreSettings
from airflow_hive_federation.waiting import boot_time_s

log = logging.getLogger(__name__)

#: Share of ``hive.txn.timeout`` after which the holder of a transaction considers it lost.
SILENCE_SHARE = 0.9
#: Answers after which there is nothing left to keep alive.
FINAL_ANSWERS = (NoSuchLockError, NoSuchTransactionError, TransactionAbortedError)
#: A heartbeat that fails leaves room for several more before the silence is too long.
_TRIES = 6
_DEFAULT_TIMEOUT_S = 300.0
#: No heartbeat is waited for longer, in seconds, however long the silence may be.
_LONGEST_CALL_S = 20.0


class LossReason(StrEnum):
    """How it came to be known that a lock or a transaction is lost."""

    REFUSED = "refused"  # the metastore answers that it does not exist any more
    SILENT = "silent"  # no heartbeat was confirmed for too long


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A lock or a transaction that must be considered lost.

    :param reason: how that is known.
    :param silent_s: seconds since the last confirmed heartbeat was sent.
    :param cause: the metastore's answer, or the error of the last heartbeat that failed; ``None`` if none
        has failed.
    """

    reason: LossReason
    silent_s: float
    cause: Exception | None = None

    @property
    def word(self) -> str:
        """The loss in half a sentence."""
        if self.reason is LossReason.REFUSED:
            return f"the metastore has ended it ({self.cause})"
        why = f"; the last one failed with {type(self.cause).__name__}: {self.cause}" if self.cause else ""
        return f"no heartbeat was confirmed for {self.silent_s:.1f} s{why}"


class Heartbeat:
    """Sends heartbeats from a thread with a connection of its own, until it is stopped.

    A loss is final: a heartbeat that comes through after too long a silence does not undo it.

    :param settings: of the metastore. The connection's deadlines are shortened, so that a call that hangs
        leaves time for others within ``silence_s``.
    :param beat: sends one heartbeat over the client that it is given, and raises if the metastore does not
        confirm it: one of :data:`FINAL_ANSWERS` if there is nothing left to keep alive.
    :param name: what is kept alive, in messages and as the thread's name: ``lock 7``.
    :param interval_s: seconds between two heartbeats.
    :param silence_s: seconds after which the holder considers itself lost; less than the metastore, or
        whoever else takes over, waits.
    :param since_s: moment (of ``clock``) before the lock or transaction was asked for: the age's beginning.
    :param on_loss: is called once, with the loss, by the thread that notices it first.
    :param clock: seconds of a clock that never goes back.
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
        """Begin to send heartbeats.

        :param at_once: send the first now; else after ``interval_s``.
        """
        self._at_once = at_once
        self._thread.start()
        return self

    def stop(self) -> None:
        """Send no more heartbeats. A call that hangs is not waited for longer than its deadline."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=self._deadline_s + 1.0)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def age_s(self) -> float:
        """Seconds since the last confirmed heartbeat was sent."""
        return self._clock() - self._confirmed_s

    @property
    def loss(self) -> Loss | None:
        """The loss, decided by the age at this moment; ``None`` while the hold is good."""
        if self._loss is None and self.age_s > self._silence_s:
            self._lose(LossReason.SILENT, self._failure)
        return self._loss

    def prove(self, *, fresh_s: float = 0.0) -> Loss | None:
        """Have the metastore confirm the hold now; return the loss if it is lost.

        A metastore that does not answer is asked again until the hold is lost by silence.

        :param fresh_s: age, in seconds, up to which the last confirmed heartbeat is proof enough.
        """
        if self.age_s < fresh_s:
            return self.loss
        while self.loss is None and not self.send():
            self._stopped.wait(self._retry_s)
        return self.loss

    def send(self) -> bool:
        """Send one heartbeat; return whether it was confirmed in time."""
        with self._connection:
            if self.loss is not None:
                return False
            sent_s = self._clock()
            try:
                self._beat(self._client)
            except FINAL_ANSWERS as error:
                self._lose(LossReason.REFUSED, error)
            except Exception as error:  # noqa: BLE001 - ends in "lost", whatever it is, unless the next succeeds
                self._failure = error
                log.warning("The heartbeat of %s failed: %s: %s", self._name, type(error).__name__, error)
            else:
                # An answer after too long a silence comes too late: others may have acted meanwhile.
                if self.loss is None:
                    self._confirmed_s, self._failure = sent_s, None
                    return True
        return False

    @contextmanager
    def client(self) -> Iterator[MetastoreClient]:
        """Lend the connection, for a question that belongs to the hold; no heartbeat is sent meanwhile."""
        with self._connection:
            yield self._client

    def give_up(self, cause: Exception) -> None:
        """Note that the hold is lost, for a reason that the heartbeats do not see."""
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
        if not self._stopped.is_set():  # else it has been given back meanwhile
            log.warning("%s is lost: %s", self._name, loss.word)
            self._on_loss(loss)


def transaction_timeout_s(client: MetastoreClient) -> float:
    """Seconds of silence after which the metastore ends a transaction or a lock (``hive.txn.timeout``)."""
    default = f"{_DEFAULT_TIMEOUT_S:.0f}s"
    try:
        timeout = client.get_config_value("metastore.txn.timeout", default)
    except InvalidOperationError:
        return _DEFAULT_TIMEOUT_S  # Hive 2 answers only for names that begin with "hive."
    return parse_duration_s(timeout) or _DEFAULT_TIMEOUT_S

"""Waits until a probe succeeds; a poll policy defines the pauses between its calls.

Operators, sensors and triggers share a probe and a policy, and differ only in the place of the wait: a
worker, the triggerer, or a plain loop. :class:`Wait` makes the steps; its callers sleep between them.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from airflow_hive_federation.errors import HiveFederationError

logger = logging.getLogger(__name__)

#: Seconds that metastores may be away, during their restart for instance, before a wait for them fails.
PATIENCE_S = 120.0

Answer = TypeVar("Answer")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class PollPolicy:
    """The pauses between the calls of a probe, and the timeout of the wait.

    :param first_s: seconds before the second call.
    :param factor: the growth of the pause from one call to the next.
    :param longest_s: the longest pause in seconds.
    :param timeout_s: seconds after which the wait ends, the time of the calls included; ``None`` waits for
        ever.
    :param patience_s: seconds during which retryable errors of the probe do not end the wait; they count from
        the first error after an answer.
    """

    first_s: float = 0.5
    factor: float = 1.5
    longest_s: float = 5.0
    timeout_s: float | None = None
    patience_s: float = 0.0

    def pauses(self, clock: Callable[[], float] = time.monotonic) -> Iterator[float]:
        """Return the pauses in seconds; the timeout counts from this call, including the work between pauses.

        :param clock: returns the seconds of a clock that never goes back.
        """
        return self._pauses(clock, None if self.timeout_s is None else clock() + self.timeout_s)

    def _pauses(self, clock: Callable[[], float], deadline_s: float | None) -> Iterator[float]:
        pause = self.first_s
        while deadline_s is None or clock() < deadline_s:
            yield pause if deadline_s is None else max(0.0, min(pause, deadline_s - clock()))
            pause = min(pause * self.factor, self.longest_s)


def retry(
    call: Callable[[], Result],
    policy: PollPolicy,
    *,
    tries: int,
    on: type[Exception] | tuple[type[Exception], ...],
    but_not_on: tuple[type[Exception], ...] = (),
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """Repeat a call while it fails with a passing error, with the pauses of the policy; return its result.

    :param tries: the maximal number of calls; the error of the last one is raised.
    :param on: errors after which a repetition may succeed.
    :param but_not_on: subclasses of these errors that a repetition would only raise again.
    :param sleep: waits for a number of seconds.
    """
    for pause_s in islice(policy.pauses(), tries - 1):
        try:
            return call()
        except on as error:
            if isinstance(error, but_not_on):
                raise
            logger.debug("Trying again: %s", error)
        sleep(pause_s)
    return call()


class StopRequest:
    """A request to stop, which any thread may make, and also a signal's handler while its thread waits here.

    An ``Event`` would not do: its ``set`` takes a lock that its ``wait`` may hold at the moment of the
    signal, so that the process would never stop. A ``SimpleQueue`` is made for this.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._made = False

    def make(self) -> None:
        """Request the stop, for good."""
        self._made = True
        self._calls.put(None)

    @property
    def made(self) -> bool:
        """Return whether the stop has been requested."""
        return self._made

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the request in the one thread that stops; return whether it has been made.

        :param timeout_s: seconds to wait; ``None`` waits until the request is made.
        """
        if not self._made:
            with suppress(queue.Empty):
                self._calls.get(timeout=timeout_s)
        return self._made


class Departure(BaseException):
    """Leaves a task whose work goes on elsewhere; another process returns when the work is done.

    It is no ``Exception``. Blocks that keep something for the work let it be, and name it here, so that the
    one who waits keeps it alive.
    """

    def __init__(self, words: str) -> None:
        super().__init__(words)
        #: Open read transactions that keep files: URIs of the metastore, and the transaction's id.
        self.leases: list[tuple[tuple[str, ...], int]] = []
        #: Those of them that the process ends that returns.
        self.borrowed: list[tuple[tuple[str, ...], int]] = []
        #: The progress of the task, as values of JSON, if it does not begin anew.
        self.progress: dict[str, object] = {}


def boot_time_s() -> float:
    """Return the seconds of a clock that never goes back, and counts suspended time if the system can."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Wait(Generic[Answer]):
    """A wait as steps, each of which calls the probe once; the caller sleeps between two steps.

    The timeout includes the time that the probe takes: slow probes are called less often. The last call
    begins at the timeout or before it, so the wait ends at most one call later. A probe that fails at the
    timeout is called again until the policy's patience is over, so that the outcome is an answer or an error.

    :param probe: returns a value that is true if the wait is over.
    :param clock: returns the seconds of a clock that never goes back.
    """

    def __init__(
        self,
        probe: Callable[[], Answer],
        policy: PollPolicy,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._probe = probe
        self._policy = policy
        self._clock = clock
        self._pauses = policy.pauses(clock)
        self._failing_since_s: float | None = None
        self._answer: Answer | None = None

    @property
    def answer(self) -> Answer:
        """Return the last answer of the probe."""
        if self._answer is None:
            raise RuntimeError("The wait is not over.")
        return self._answer

    def step(self) -> float | None:
        """Call the probe; return the seconds to sleep before the next step, or ``None`` if the wait is over.

        :raises HiveFederationError: the probe raised a terminal error, or retryable errors for longer than
            the policy bears.
        """
        try:
            self._answer = self._probe()
        except HiveFederationError as error:
            return self._pause_after(error)
        self._failing_since_s = None
        return None if self._answer else next(self._pauses, None)

    def _pause_after(self, error: HiveFederationError) -> float:
        now_s = self._clock()
        is_first = self._failing_since_s is None
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        left_s = self._failing_since_s + self._policy.patience_s - now_s
        if not error.retryable or left_s <= 0:
            raise error
        # A silence may last for days, and is one line.
        (logger.warning if is_first else logger.debug)("Trying again: %s", error)
        return min(next(self._pauses, self._policy.longest_s), left_s)


def wait_until(
    probe: Callable[[], Answer],
    policy: PollPolicy,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Answer:
    """Call ``probe`` until its answer is true, at most for the policy's timeout; return the last answer.

    :param sleep: waits for a number of seconds.
    :param clock: returns the seconds of a clock that never goes back.
    :raises HiveFederationError: the probe raised a terminal error, or retryable errors for longer than the
        policy bears.
    """
    wait = Wait(probe, policy, clock=clock)
    while (pause_s := wait.step()) is not None:
        sleep(pause_s)
    return wait.answer

"""Provides the base of the sensors: the wait for a probe, in a worker or in the triggerer."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_hive_federation.hooks.compat import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferralTimeout,
)
from airflow_hive_federation.hooks.error_translation import airflow_error, as_airflow_error
from airflow_hive_federation.hooks.probes import Probe, ProbeAnswer, observed
from airflow_hive_federation.hooks.progress import task_observer
from airflow_hive_federation.runtime.arguments import flag
from airflow_hive_federation.runtime.durations import duration_s
from airflow_hive_federation.triggers.waiting import ProbeTrigger
from airflow_hive_federation.waiting import PATIENCE_S, PollPolicy, wait_until

if TYPE_CHECKING:
    from airflow.sdk import Context

#: Seconds by which the deferral outlives the trigger's deadline: it only catches a triggerer that has died.
_GRACE_S = 600.0


class ProbeSensor(BaseSensorOperator):
    """Base of the sensors: calls a probe every ``poke_interval`` until its answer is true.

    ``deferrable`` and ``mode`` change the place of the wait and nothing else. A metastore that does not
    answer is tried again for two minutes (but not for longer than ``timeout``); then the task fails and may
    be retried. At the timeout, the task fails with ``AirflowSensorTimeout``, for good.

    :param timeout: the time to wait: seconds, a ``timedelta``, or text in Hive's form (``1h``). (templated)
    :param deferrable: wait in the triggerer instead of a worker slot.

    The other parameters are those of Airflow's sensors.
    """

    template_fields: Sequence[str] = ("timeout",)

    def __init__(self, *, timeout: Any = None, deferrable: bool = True, **kwargs: Any) -> None:
        # Airflow's class takes numbers only; templates and text are read when the task runs.
        is_number = isinstance(timeout, int | float | timedelta)
        # Its default is another value in each version, and ``None`` only in the latest.
        super().__init__(**({"timeout": timeout} if is_number else {}), **kwargs)
        if not is_number and timeout is not None:
            self.timeout = timeout
        self.deferrable = flag("deferrable", deferrable)
        self._answer: ProbeAnswer | None = None

    @abstractmethod
    def probe(self) -> Probe:
        """Return the probe, from the rendered arguments.

        :raises HiveFederationError: an argument is impossible, or a metastore refuses or does not answer.
        """

    def finish(self, answer: ProbeAnswer) -> object:
        """Return the task's result after the last answer.

        :raises AirflowSensorTimeout: the answer is not true.
        """
        if not answer:
            raise AirflowSensorTimeout(f"{answer.description}. The sensor waited for {self.timeout_s:g} s.")
        return answer.value

    @property
    def timeout_s(self) -> float:
        """The timeout in seconds.

        :raises ConfigurationError: the timeout is no duration.
        """
        timeout: object = self.timeout
        return float(timeout) if isinstance(timeout, int | float) else duration_s(str(timeout))

    def watched(self, context: Context) -> AbstractContextManager[object]:
        """Return a context that sees the error with which the task ends; by default nothing looks."""
        return nullcontext()

    def execute(self, context: Context) -> Any:
        with self.watched(context):
            return self._execute(context)

    def _execute(self, context: Context) -> object:
        if self.reschedule and not self.deferrable:
            return self._execute_rescheduled(context)
        with self._skipping(), as_airflow_error():
            deadline_s = time.time() + self.timeout_s
            probe = self.probe()
            # The first look is in the worker, so that an error appears at once; mostly it is the only one.
            policy = self.poll_policy(0.0 if self.deferrable else self.timeout_s)
            answer = wait_until(observed(probe, task_observer(self.log)), policy)
            if self.deferrable and not answer and self.timeout_s:
                self._defer(probe, deadline_s)
            return self.finish(answer)

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once, or until a metastore that does not answer has been tried for long enough."""
        with as_airflow_error():
            answer = wait_until(observed(self.probe(), task_observer(self.log)), self.poll_policy(0.0))
        self._answer = answer
        return PokeReturnValue(is_done=answer.ready, xcom_value=answer.value)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> object:
        """Return the task's result; the trigger resumes the task here.

        A wait that another version of the package began, and whose answer this one cannot read, begins anew.
        """
        if "error" in event:
            raise airflow_error(event["error"], retryable=bool(event.get("retryable", True)))
        try:
            answer = ProbeAnswer.from_json(event)
        except ValueError as error:
            self.log.warning("The wait begins anew, because another version ended it: %s", error)
            return self.execute(context)
        with as_airflow_error():
            return self.finish(answer)

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> object:
        """Resume the task after its trigger, with the same exceptions as a wait in a worker."""
        # The sensor's method in Airflow also skips the task after errors that a poke leaves to the retries.
        with self.watched(context), self._skipping():
            try:
                return super(BaseSensorOperator, self).resume_execution(next_method, next_kwargs, context)
            except TaskDeferralTimeout as error:
                raise AirflowSensorTimeout("The triggerer has not ended the wait in time.") from error

    def poll_policy(self, timeout_s: float) -> PollPolicy:
        """Return the policy of a wait; by default with the pauses of Airflow's sensors."""
        longest = self.max_wait.total_seconds() if self.max_wait is not None else self.timeout_s
        return PollPolicy(
            first_s=self.poke_interval,
            factor=2.0 if self.exponential_backoff else 1.0,
            longest_s=longest if self.exponential_backoff else self.poke_interval,
            timeout_s=timeout_s,
            patience_s=self.timeout_s if self.silent_fail else min(PATIENCE_S, self.timeout_s),
        )

    def _defer(self, probe: Probe, deadline_s: float) -> None:
        self.defer(
            trigger=ProbeTrigger(
                kind=probe.kind,
                probe=probe.to_json(),
                poll=asdict(self.poll_policy(0.0)),
                deadline_s=deadline_s,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout_s + _GRACE_S),
        )

    def _execute_rescheduled(self, context: Context) -> object:
        """Let Airflow poke and reschedule; its error of a timeout does not describe the state."""
        with as_airflow_error():
            self.timeout = self.timeout_s
        try:
            return super().execute(context)
        except AirflowSensorTimeout as error:
            if self._answer is None:
                raise
            self.finish(self._answer)
            raise error

    @contextmanager
    def _skipping(self) -> Iterator[None]:
        """Skip the task by ``soft_fail`` and ``never_fail`` where Airflow's own loop of pokes does."""
        try:
            yield
        except AirflowSkipException:
            raise
        except (AirflowSensorTimeout, AirflowFailException) as error:
            if not (self.soft_fail or self.never_fail):
                raise
            raise AirflowSkipException(str(error)) from error
        except AirflowException as error:
            if not self.never_fail:
                raise
            raise AirflowSkipException(str(error)) from error

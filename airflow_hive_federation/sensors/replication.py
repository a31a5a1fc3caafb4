"""Waits in an Airflow sensor until a replica is close enough to its source."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator

from airflow_hive_federation.hooks.compat import AirflowSensorTimeout
from airflow_hive_federation.hooks.error_translation import airflow_error, as_airflow_error
from airflow_hive_federation.hooks.policy_fields import policy_fields, rendered_policy
from airflow_hive_federation.replication.policy import ReplicationPolicy, duration_s
from airflow_hive_federation.triggers.replication import ReplicationLagTrigger, described_lag

if TYPE_CHECKING:
    from airflow.sdk import Context

#: Seconds by which the deferral outlives the trigger's own deadline.
_GRACE_S = 600.0


class ReplicationLagSensor(BaseSensorOperator):
    """Waits until a target lacks no change that is older than ``max_lag``.

    Returns ``{"events", "seconds"}``: the number of events of the source's database that the target lacks,
    and the age of the oldest. Files of external tables change without events and do not count.

    :param policy: a :class:`ReplicationPolicy`, or its fields as a mapping. (templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :param max_lag: seconds, or text in Hive's form (``15m``); 0 waits until nothing is missing. (templated)
    :param max_lag_events: the number of events that may be missing; by default any number.
    :param poll_interval: seconds between two queries of the metastores.
    :param wait: the time to wait before the task fails: seconds, or text in Hive's form. (templated)
    :param deferrable: wait in the triggerer instead of a worker slot.

    Of the parameters of Airflow's sensors, ``poke_interval``, ``timeout``, ``mode`` and ``soft_fail`` have no
    effect.
    :raises ConfigurationError: the policy has an unknown field, or lacks a required field.
    """

    template_fields: Sequence[str] = ("policy", "source_conn_id", "target_conn_id", "max_lag", "wait")
    template_fields_renderers = {"policy": "json"}
    ui_color = "#e8f0d8"

    def __init__(
        self,
        *,
        policy: ReplicationPolicy | Mapping[str, Any],
        source_conn_id: str,
        target_conn_id: str,
        max_lag: float | str = "15m",
        max_lag_events: int | None = None,
        poll_interval: float = 10.0,
        wait: float | str = "1h",
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.policy = policy_fields(policy)
        self.source_conn_id = source_conn_id
        self.target_conn_id = target_conn_id
        self.max_lag = max_lag
        self.max_lag_events = max_lag_events
        self.poll_interval = poll_interval
        self.wait = wait
        self.deferrable = deferrable

    def execute(self, context: Context) -> dict[str, Any] | None:
        with as_airflow_error():
            rendered_policy(self.policy, {})
            wait_s = duration_s(str(self.wait))
            trigger = ReplicationLagTrigger(
                policy=self.policy,
                source_conn_id=self.source_conn_id,
                target_conn_id=self.target_conn_id,
                max_lag_s=duration_s(str(self.max_lag)),
                max_lag_events=self.max_lag_events,
                poll_s=self.poll_interval,
                deadline_s=time.time() + wait_s,
            )
            # The first query runs in the worker, so that an error appears at once; mostly it is the only one.
            lag = trigger.ask()
            if trigger.is_near(lag):
                return lag
            self.log.info("%s", described_lag(lag))
            if self.deferrable:
                self.defer(
                    trigger=trigger,
                    method_name="execute_complete",
                    timeout=timedelta(seconds=wait_s + _GRACE_S),
                )
            while time.time() < trigger.deadline_s:
                time.sleep(min(self.poll_interval, max(0.0, trigger.deadline_s - time.time())))
                lag = trigger.ask()
                if trigger.is_near(lag):
                    return lag
                self.log.info("%s", described_lag(lag))
        raise self._too_late(lag)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any] | None:
        """Return the lag; the trigger resumes the task here when the target is close or the time is over."""
        if event["state"] == "error":
            raise airflow_error(event["message"], retryable=event["retryable"])
        if event["state"] == "timeout":
            raise self._too_late(event["lag"])
        lag: dict[str, Any] | None = event["lag"]
        return lag

    def _too_late(self, lag: dict[str, Any] | None) -> AirflowSensorTimeout:
        return AirflowSensorTimeout(f"{described_lag(lag)}. The sensor waited for {self.wait}.")

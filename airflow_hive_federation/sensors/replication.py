"""Waits in an Airflow sensor until a replica is close enough to its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.hooks.page_links import PolicyLink
from airflow_hive_federation.hooks.policy_fields import policy_fields, rendered_policy
from airflow_hive_federation.hooks.probes import LagProbe
from airflow_hive_federation.hooks.published import publisher_of
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.runtime.arguments import whole
from airflow_hive_federation.runtime.durations import duration_s
from airflow_hive_federation.sensors.waiting import ProbeSensor

if TYPE_CHECKING:
    from airflow.sdk import Context


class ReplicationLagSensor(ProbeSensor):
    """Waits until a target lacks no change that is older than ``max_lag``.

    Returns ``{"events", "seconds"}``: the number of events of the source's database that the target lacks,
    and the age of the oldest. Files of external tables change without events and do not count.

    :param policy: a :class:`ReplicationPolicy`, or a mapping of its fields. (values templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :param max_lag: seconds, or text in Hive's form (``15m``); 0 waits until nothing is missing. (templated)
    :param max_lag_events: the number of events that may be missing; by default any number.
    :param poke_interval: seconds between two queries of the metastores.
    :param timeout: the time to wait before the task fails: seconds, a ``timedelta``, or text in Hive's form.
        (templated)
    :param deferrable: wait in the triggerer instead of a worker slot.

    The other parameters are those of Airflow's sensors.
    :raises ConfigurationError: the policy has an unknown field, or lacks a required field.
    """

    template_fields: Sequence[str] = (
        *ProbeSensor.template_fields,
        "policy",
        "source_conn_id",
        "target_conn_id",
        "max_lag",
    )
    template_fields_renderers = {"policy": "json"}
    operator_extra_links = (PolicyLink(),)
    ui_color = "#e8f0d8"

    def __init__(
        self,
        *,
        policy: ReplicationPolicy | Mapping[str, object],
        source_conn_id: str,
        target_conn_id: str,
        max_lag: float | str = "15m",
        max_lag_events: int | None = None,
        poke_interval: object = 10.0,
        timeout: object = "1h",
        **kwargs: Any,
    ) -> None:
        super().__init__(timeout=timeout, poke_interval=poke_interval, **kwargs)
        self.policy = policy_fields(policy)
        self.source_conn_id = source_conn_id
        self.target_conn_id = target_conn_id
        self.max_lag = max_lag
        self.max_lag_events = None if max_lag_events is None else whole("max_lag_events", max_lag_events)
        self._by: dict[str, object] | None = None

    def pre_execute(self, context: Context) -> None:
        """Note the task instance, with which each lag is published for the page in Airflow."""
        self._by = asdict(publisher_of(context))

    def probe(self) -> LagProbe:
        rendered_policy(self.policy, {})
        return LagProbe(
            policy=self.policy,
            source_conn_id=self.source_conn_id,
            target_conn_id=self.target_conn_id,
            max_lag_s=duration_s(str(self.max_lag)),
            max_lag_events=self.max_lag_events,
            by=self._by,
        )

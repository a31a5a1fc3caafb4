"""Waits in an Airflow sensor for the open transactions that a bootstrap has to wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.page_links import PolicyLink
from airflow_hive_federation.hooks.policy_fields import policy_fields
from airflow_hive_federation.hooks.probes import DrainProbe, ProbeAnswer
from airflow_hive_federation.hooks.progress import task_observer
from airflow_hive_federation.hooks.published import FailuresPublished, publish_wait, publisher_of
from airflow_hive_federation.replication.policy import DRAIN_POLL, ReplicationPolicy
from airflow_hive_federation.runtime.durations import duration_s
from airflow_hive_federation.sensors.waiting import ProbeSensor
from airflow_hive_federation.waiting import PollPolicy

if TYPE_CHECKING:
    from airflow.sdk import Context

_TIMEOUT = "1h"


class OpenTransactionsDrainSensor(ProbeSensor):
    """Records the source's last event id, then waits until the transactions open at that moment have ended.

    Only transactions count that hold write ids of the database's tables or write locks in the database. Those
    still open after the timeout are aborted, which is no failure; transactions that begin later, and those of
    other databases, stay untouched.

    Returns ``{"database", "event_id", "transactions", "moment_ms", "aborted"}``, which
    :class:`BootstrapDumpOperator` takes.

    :param source_conn_id: the connection of the source's metastore. (templated)
    :param database: the database to be dumped. (templated)
    :param policy: the policy, or its fields, under whose name the wait and its failure are published for the
        page in Airflow; without it, nothing is. (templated)
    :param timeout: the time to wait before aborting: seconds, a ``timedelta``, or text in Hive's form,
        ``1h`` (``hive.repl.bootstrap.dump.open.txn.timeout``). (templated)
    :param poke_interval: the most seconds between two looks; the first ones are closer together.
    :param deferrable: wait in the triggerer instead of a worker slot.

    The other parameters are those of Airflow's sensors. ``mode="reschedule"`` is refused, because Airflow
    keeps nothing of a rescheduled task, which would begin anew with other transactions; ``deferrable`` frees
    the worker slot.
    """

    # As in the operators, templates of a connection may name the policy, which is rendered first.
    template_fields: Sequence[str] = ("policy", *ProbeSensor.template_fields, "source_conn_id", "database")
    template_fields_renderers = {"policy": "json"}
    operator_extra_links = (PolicyLink(),)
    valid_modes = ("poke",)
    ui_color = "#e8f0d8"

    def __init__(
        self,
        *,
        source_conn_id: str,
        database: str,
        policy: ReplicationPolicy | Mapping[str, object] | None = None,
        timeout: object = _TIMEOUT,
        poke_interval: object = DRAIN_POLL.longest_s,
        **kwargs: Any,
    ) -> None:
        # Airflow's class takes None for its own default, which is a week.
        timeout = _TIMEOUT if timeout is None else timeout
        super().__init__(timeout=timeout, poke_interval=poke_interval, **kwargs)
        self.source_conn_id = source_conn_id
        self.database = database
        self.policy = None if policy is None else policy_fields(policy)
        self._by: dict[str, object] | None = None

    @contextmanager
    def watched(self, context: Context) -> Iterator[None]:
        """Publish the error with which the block ends, once."""
        policy = self.policy
        if policy is None or self._by is not None:
            yield
            return
        self._by = asdict(publisher_of(context))
        try:
            with FailuresPublished(lambda: [policy], context, self.log):
                yield
        finally:
            self._by = None

    @property
    def timeout_s(self) -> float:
        """The timeout in seconds; rendered templates are text, and ``None`` if a policy's field is empty."""
        is_empty = str(self.timeout).strip() in {"", "None"}
        return duration_s(_TIMEOUT) if is_empty else super().timeout_s

    def poll_policy(self, timeout_s: float) -> PollPolicy:
        """Return the policy of the wait: close looks at first."""
        policy, first_s = super().poll_policy(timeout_s), min(DRAIN_POLL.first_s, self.poke_interval)
        return replace(policy, first_s=first_s, factor=DRAIN_POLL.factor)

    def probe(self) -> DrainProbe:
        from airflow_hive_federation.replication.dump.drain import begin_drain

        with HiveMetastoreHook(self.source_conn_id).client() as client:
            start = begin_drain(client, str(self.database).lower())
        task_observer(self.log)(start.event)
        return DrainProbe(
            source_conn_id=self.source_conn_id,
            start=start.to_json(),
            policy=None if self.policy is None else dict(self.policy),
            by=self._by,
        )

    def finish(self, answer: ProbeAnswer) -> dict[str, object]:
        """Abort the transactions that are still open."""
        from airflow_hive_federation.replication.dump.drain import DrainStart, abort_remaining

        start = DrainStart.from_json(answer.value)
        aborted: Sequence[int] = ()
        if not answer:
            with HiveMetastoreHook(self.source_conn_id).client() as client:
                aborted = abort_remaining(client, start, observer=task_observer(self.log))
        if self.policy is not None and self._by is not None:
            publish_wait(self.policy, "", self._by, self.log)
        return {**start.to_json(), "aborted": list(aborted)}

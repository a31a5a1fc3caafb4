"""Fails a replicated database over, in Airflow tasks; the cycle between them is the usual one."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.hooks.compat import default_deferrable
from airflow_hive_federation.hooks.error_translation import airflow_error, as_airflow_error
from airflow_hive_federation.hooks.probes import DrainProbe, ProbeAnswer, observed
from airflow_hive_federation.hooks.published import publish_wait, publisher_of
from airflow_hive_federation.operators.replication_base import ReplicationOperator
from airflow_hive_federation.replication.policy import DRAIN_POLL
from airflow_hive_federation.runtime.arguments import flag
from airflow_hive_federation.triggers.waiting import ProbeTrigger
from airflow_hive_federation.waiting import wait_until

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.replication.dump.drain import DrainStart
    from airflow_hive_federation.replication.failover_results import FailoverResult, SourceState

#: Seconds by which the deferral outlives the trigger's deadline: it only catches a triggerer that has died.
_GRACE_S = 600.0


class FailoverStartOperator(ReplicationOperator):
    """Marks the source of a replication as being left, and waits for its open transactions.

    The marks are the database properties ``repl.failover.endpoint`` and ``readonly``, which Hive's
    ``EnforceReadOnlyDatabaseHook`` heeds. Transactions that have not ended after the policy's
    ``open_txn_timeout_s`` are aborted. Afterwards run a cycle and a verification, then
    :class:`FailoverOperator`. Returns ``{"database", "writable"}`` of the source.

    :param policy: a :class:`ReplicationPolicy`, or a mapping of its fields. (values templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :param deferrable: wait in the triggerer instead of a worker slot; by default if Airflow's
        ``[operators] default_deferrable`` is set.
    :raises ConfigurationError: the policy has an unknown field, or lacks a required field.
    """

    ui_color = "#f0d8e8"

    def __init__(self, *, deferrable: bool | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deferrable = None if deferrable is None else flag("deferrable", deferrable)
        self._answer: ProbeAnswer | None = None

    def perform(self, context: Context) -> SourceState:
        from airflow_hive_federation.replication.dump.drain import DrainStart
        from airflow_hive_federation.replication.failover import end_start, mark_source
        from airflow_hive_federation.replication.failover_results import SourceState

        with as_airflow_error():
            source, target, policy = self.ends()
            answer = self._answer
            if answer is None:
                with source.pool() as source_pool, target.pool() as target_pool:
                    start = mark_source(source_pool, target_pool, policy, observer=self.observer)
                answer = None if start is None else self._drained(context, start, policy.open_txn_timeout_s)
            if answer is not None and not answer:
                with source.pool() as source_pool:
                    start = DrainStart.from_json(answer.value)
                    end_start(source_pool, policy, start, observer=self.observer)
            if answer is not None:
                publish_wait(self.policy, "", asdict(publisher_of(context)), self.log)
            return SourceState(database=policy.source_database, writable=False)

    def execute_complete(self, context: Context, event: dict[str, object]) -> dict[str, object]:
        """Abort the transactions that have not ended; the trigger resumes the task here.

        A wait that another version of the package began, and whose answer this one cannot read, begins anew.
        """
        if "error" in event:
            raise airflow_error(str(event["error"]), retryable=bool(event.get("retryable", True)))
        try:
            self._answer = ProbeAnswer.from_json(event)
        except ValueError as error:
            self.log.warning("The wait begins anew, because another version ended it: %s", error)
        return self.execute(context)

    def _drained(self, context: Context, start: DrainStart, timeout_s: float) -> ProbeAnswer:
        """Wait for transactions, here or in the triggerer; return the last answer."""
        deadline_s = time.time() + timeout_s
        probe = DrainProbe(
            source_conn_id=self.source_conn_id,
            start=start.to_json(),
            policy=dict(self.policy),
            by=asdict(publisher_of(context)),
        )
        defers = default_deferrable() if self.deferrable is None else self.deferrable
        # The first look is in the worker: mostly it is the only one.
        poll = replace(DRAIN_POLL, timeout_s=0.0 if defers else timeout_s)
        answer = wait_until(observed(probe, self.observer), poll)
        if defers and not answer and timeout_s:
            self.defer(
                trigger=ProbeTrigger(
                    kind=probe.kind, probe=probe.to_json(), poll=asdict(poll), deadline_s=deadline_s
                ),
                method_name="execute_complete",
                timeout=timedelta(seconds=timeout_s + _GRACE_S),
            )
        return answer


class FailoverOperator(ReplicationOperator):
    """Switches the roles: the source becomes a replica of the target, and the target may be written.

    At no moment may both sides be written. The task fails, and changes nothing, if the source was written to
    since the last cycle. If the task is killed at any point, its next run continues. Returns ``{"converged",
    "database", "event_id", "summary", "replica", "policy", "removed", "missing"}``; ``policy`` is the policy
    of the way back, which needs no bootstrap. With ``source_lost``, ``converged`` is false, there is no
    replica and no policy, and ``missing`` names the tables and partitions that killed loads have dropped.

    :param policy: a :class:`ReplicationPolicy`, or a mapping of its fields. (values templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :param source_lost: the source does not answer and never will: make the target writable in its present
        state. The task fails if the source answers.
    :raises ConfigurationError: the policy has an unknown field, or lacks a required field.
    """

    ui_color = "#f0d8e8"

    def __init__(self, *, source_lost: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.source_lost = flag("source_lost", source_lost)

    def perform(self, context: Context) -> FailoverResult:
        from airflow_hive_federation.replication.failover import switch_roles
        from airflow_hive_federation.replication.take_over import take_over

        with as_airflow_error():
            source, target, policy = self.ends()
            with source.pool() as source_pool, target.pool() as target_pool:
                if self.source_lost:
                    result = take_over(source_pool, target_pool, policy, observer=self.observer).result()
                else:
                    result = switch_roles(source_pool, target_pool, policy, observer=self.observer).result()
            self.publish_failover(context, policy, result)
            return result


class FailoverRollbackOperator(ReplicationOperator):
    """Undoes :class:`FailoverStartOperator`: the source may be written again, and replication continues.

    The task fails if the roles are switched, or if a take-over made the target writable: then both sides
    could be written. Returns ``{"database", "writable"}`` of the source.

    :param policy: a :class:`ReplicationPolicy`, or a mapping of its fields. (values templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :param target_lost: the target does not answer and never will: roll back all the same.
    :raises ConfigurationError: the policy has an unknown field, or lacks a required field.
    """

    ui_color = "#f0d8e8"

    def __init__(self, *, target_lost: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.target_lost = flag("target_lost", target_lost)

    def perform(self, context: Context) -> SourceState:
        from airflow_hive_federation.replication.failover import roll_back_failover
        from airflow_hive_federation.replication.failover_results import SourceState

        with as_airflow_error():
            source, target, policy = self.ends()
            with source.pool() as source_pool, target.pool() as target_pool:
                roll_back_failover(
                    source_pool, target_pool, policy, target_lost=self.target_lost, observer=self.observer
                )
            return SourceState(database=policy.source_database, writable=True)

"""Fails a replicated database over, in Airflow tasks; the cycle between them is the usual one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hive_federation.hooks.error_translation import as_airflow_error
from airflow_hive_federation.operators.replication_base import ReplicationOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.replication.failover import FailoverResult, SourceState


class FailoverStartOperator(ReplicationOperator):
    """Marks the source of a replication as being left, and waits for its open transactions.

    The marks are the database properties ``repl.failover.endpoint`` and ``readonly``, which Hive's
    ``EnforceReadOnlyDatabaseHook`` heeds. Transactions that have not ended after the policy's
    ``open_txn_timeout_s`` are aborted. Afterwards run a cycle and a verification, then
    :class:`FailoverOperator`. Returns ``{"database", "writable"}`` of the source.

    :param policy: a :class:`ReplicationPolicy`, or its fields as a mapping. (templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :raises ConfigurationError: the policy has an unknown field, or lacks a required field.
    """

    ui_color = "#f0d8e8"

    def perform(self, context: Context) -> SourceState:
        from airflow_hive_federation.replication.failover import SourceState, start_failover

        with as_airflow_error():
            source, target, policy = self.ends()
            with source.pool() as source_pool, target.pool() as target_pool:
                start_failover(source_pool, target_pool, policy, observer=self.observer)
            return SourceState(database=policy.source_database, writable=False)


class FailoverOperator(ReplicationOperator):
    """Switches the roles: the source becomes a replica of the target, and the target may be written.

    At no moment may both sides be written. The task fails, and changes nothing, if the source was written to
    since the last cycle. If the task is killed at any point, its next run continues. Returns ``{"converged",
    "database", "event_id", "summary", "replica", "policy", "removed"}``; ``policy`` is the policy of the way
    back, which needs no bootstrap. With ``source_lost``, ``converged`` is false, and there is no replica and
    no policy.

    :param policy: a :class:`ReplicationPolicy`, or its fields as a mapping. (templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :param source_lost: the source does not answer and never will: make the target writable in its present
        state. The task fails if the source answers.
    :raises ConfigurationError: the policy has an unknown field, or lacks a required field.
    """

    ui_color = "#f0d8e8"

    def __init__(self, *, source_lost: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.source_lost = source_lost

    def perform(self, context: Context) -> FailoverResult:
        from airflow_hive_federation.replication.failover import switch_roles
        from airflow_hive_federation.replication.take_over import take_over

        with as_airflow_error():
            source, target, policy = self.ends()
            with source.pool() as source_pool, target.pool() as target_pool:
                if self.source_lost:
                    return take_over(source_pool, target_pool, policy, observer=self.observer).result()
                return switch_roles(source_pool, target_pool, policy, observer=self.observer).result()


class FailoverRollbackOperator(ReplicationOperator):
    """Undoes :class:`FailoverStartOperator`: the source may be written again, and replication continues.

    The task fails if the roles are switched, or if a take-over made the target writable: then both sides
    could be written. Returns ``{"database", "writable"}`` of the source.

    :param policy: a :class:`ReplicationPolicy`, or its fields as a mapping. (templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :param target_lost: the target does not answer and never will: roll back all the same.
    :raises ConfigurationError: the policy has an unknown field, or lacks a required field.
    """

    ui_color = "#f0d8e8"

    def __init__(self, *, target_lost: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.target_lost = target_lost

    def perform(self, context: Context) -> SourceState:
        from airflow_hive_federation.replication.failover import SourceState, roll_back_failover

        with as_airflow_error():
            source, target, policy = self.ends()
            with source.pool() as source_pool, target.pool() as target_pool:
                roll_back_failover(
                    source_pool, target_pool, policy, target_lost=self.target_lost, observer=self.observer
                )
            return SourceState(database=policy.source_database, writable=True)

"""Notifies people of replicas that lag behind their sources, or differ from them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow.sdk import BaseNotifier

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.hooks.compat import AirflowNotFoundException
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook, common_storage_options
from airflow_hive_federation.hooks.policy_fields import policy_fields, rendered_policy
from airflow_hive_federation.hooks.progress import task_observer
from airflow_hive_federation.progress.events import TargetBehind, TargetUnpublished
from airflow_hive_federation.progress.words import words
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.runtime.durations import duration_s

if TYPE_CHECKING:
    from airflow.sdk import Context


class ReplicaNotifier(BaseNotifier):
    """Describes the state of a replica in a line, and passes it on: its lag, and the tables that differ.

    It suits the callbacks of tasks and DAGs (``on_failure_callback``, ``on_success_callback``), where it adds
    the error of the task, and the callback of a deadline. It also sends the lag to Airflow's metrics.

    :param policy: a :class:`ReplicationPolicy`, or its fields as a mapping. (templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :param through: makes the notifier that delivers the line, for instance
        ``lambda text: SlackNotifier(text=text)``; by default, the line is a warning in the log. Airflow
        cannot store a function for the callback of a deadline, which therefore only logs.
    :param only_above: a lag, in seconds or in Hive's form (``15m``), below which nothing is sent, unless
        tables differ or a task has failed.
    :raises ConfigurationError: the policy has an unknown field, or lacks a required field.
    """

    template_fields: Sequence[str] = ("policy", "source_conn_id", "target_conn_id")

    def __init__(
        self,
        *,
        policy: ReplicationPolicy | Mapping[str, object],
        source_conn_id: str,
        target_conn_id: str,
        through: Callable[[str], BaseNotifier] | None = None,
        only_above: float | str = 0,
        context: Context | None = None,
    ) -> None:
        super().__init__(**({"context": context} if context else {}))
        self.policy = policy_fields(policy)
        self.source_conn_id = source_conn_id
        self.target_conn_id = target_conn_id
        self.through = through
        self.only_above = only_above

    def notify(self, context: Context) -> None:
        """Send the line."""
        if text := self.describe(context):
            if self.through is None:
                self.log.warning("%s", text)
            else:
                self.through(text).notify(context)

    async def async_notify(self, context: Context) -> None:
        """Send the line from the triggerer."""
        if text := await asyncio.to_thread(self.describe, context):
            if self.through is None:
                self.log.warning("%s", text)
            else:
                await self.through(text).async_notify(context)

    def describe(self, context: Mapping[str, object]) -> str:
        """Return the line; empty if there is nothing to report.

        :param context: the context of the callback: that of a failed task has its ``exception``, that of a
            failed DAG only a ``reason``.
        """
        error = _failure(context)
        try:
            lag, differing, far = self._state()
        except (HiveFederationError, AirflowNotFoundException) as unread:
            database = self.policy["source_database"]
            return _joined(f"The replica of {database} cannot be looked at: {unread}", error)
        if not (far or differing or error):
            return ""
        tables = f"; the last verification found differences in {', '.join(differing)}" if differing else ""
        return _joined(f"{lag}{tables}", error)

    def _state(self) -> tuple[str, Sequence[str], bool]:
        """Return the words of the lag, the tables that differ, and whether the lag is to be reported."""
        from airflow_hive_federation.replication.format.directory import DumpDirectory
        from airflow_hive_federation.replication.replica.position import loaded_dump
        from airflow_hive_federation.replication.status import read_lag
        from airflow_hive_federation.replication.verify.report import found_unequal

        source, target = HiveMetastoreHook(self.source_conn_id), HiveMetastoreHook(self.target_conn_id)
        policy = rendered_policy(self.policy, common_storage_options(source, target))
        with source.client() as source_client, target.client() as target_client:
            lag = read_lag(source_client, target_client, policy)
            if lag is None:
                return words(TargetUnpublished(database=policy.target_database)), (), True
            dump = loaded_dump(target_client, policy)
        behind = TargetBehind(database=policy.target_database, events=lag.events, seconds=lag.seconds)
        task_observer(_Quiet())(behind)
        differing = sorted(found_unequal(DumpDirectory(dump, policy.storage_options)))
        is_far = lag.events > 0 and lag.seconds >= duration_s(str(self.only_above))
        return words(behind), differing, is_far


class _Quiet:
    """A log that keeps nothing: the notifier writes one line of its own."""

    def info(self, *_: object, **__: object) -> None:
        """Take a line."""


def _failure(context: Mapping[str, object]) -> object:
    """Return the error of the callback's task or DAG; ``None`` if none has failed.

    Airflow gives the callbacks of a DAG no exception (``DagFileProcessorProcess``): their reason is
    ``success``, or that of the failure, such as ``task_failure`` or ``timed_out``.
    """
    error, reason = context.get("exception"), context.get("reason")
    if error is not None or reason in {None, "", "success"}:
        return error
    return f"The run {context.get('run_id', '')} of the DAG has failed ({reason})."


def _joined(state: str, error: object) -> str:
    if error is None:
        return state
    return f"{state}. {error}" if state[-1:] != "." else f"{state} {error}"

"""Chooses between the two kinds of a replication's cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.hooks.compat import BaseBranchOperator
from airflow_hive_federation.hooks.error_translation import airflow_error, as_airflow_error
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.page_links import PolicyLink
from airflow_hive_federation.hooks.policy_fields import policy_fields, rendered_policy
from airflow_hive_federation.hooks.progress import task_observer
from airflow_hive_federation.hooks.published import FailuresPublished
from airflow_hive_federation.progress.events import CycleChosen
from airflow_hive_federation.replication.policy import ReplicationPolicy

if TYPE_CHECKING:
    from airflow.sdk import Context


class ReplicationBranchOperator(BaseBranchOperator):
    """Chooses a bootstrap until the target is published, and increments from then on.

    Returns the id of the chosen task; the other branch is skipped.

    :param policy: a :class:`ReplicationPolicy`, or a mapping of its fields. (values templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :param bootstrap_task_id: the first task of the bootstrap.
    :param increment_task_id: the first task of an increment.
    :param problem: the text of an error that was found in the policy earlier; the task fails with it.
        (templated)
    :raises ConfigurationError: the policy has an unknown field, or lacks a required field.
    """

    template_fields: Sequence[str] = ("policy", "target_conn_id", "problem")
    template_fields_renderers = {"policy": "json"}
    ui_color = "#e8e8e8"
    operator_extra_links = (PolicyLink(),)

    def __init__(
        self,
        *,
        policy: ReplicationPolicy | Mapping[str, object],
        target_conn_id: str,
        bootstrap_task_id: str,
        increment_task_id: str,
        problem: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.policy = policy_fields(policy)
        self.target_conn_id = target_conn_id
        self.bootstrap_task_id = bootstrap_task_id
        self.increment_task_id = increment_task_id
        self.problem = problem

    def choose_branch(self, context: Context) -> str:
        with FailuresPublished(lambda: [self.policy], context, self.log):
            return self._chosen()

    def _chosen(self) -> str:
        from airflow_hive_federation.replication.cycle import is_published

        if self.problem:
            raise airflow_error(self.problem, retryable=False)
        hook = HiveMetastoreHook(self.target_conn_id)
        with as_airflow_error(), hook.client() as client:
            policy = rendered_policy(self.policy, hook.storage_options)
            published = is_published(client, policy)
        task_observer(self.log)(CycleChosen(database=policy.target_database, published=published))
        return self.increment_task_id if published else self.bootstrap_task_id

"""Provides the bases of the operators that work on both ends of a replication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_hive_federation.hooks.metastore import HiveMetastoreHook, common_storage_options
from airflow_hive_federation.hooks.page_links import SparkLink
from airflow_hive_federation.hooks.policy_fields import policy_fields, rendered_policy
from airflow_hive_federation.hooks.spark import SparkPipelineHook
from airflow_hive_federation.operators.policy_state import PolicyOperator
from airflow_hive_federation.operators.spark_tasks import SparkOperator
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.runtime.arguments import mapping


class ReplicationOperator(PolicyOperator):
    """Base of the operators that use a policy and the metastores of its source and its target.

    :param policy: a :class:`ReplicationPolicy`, or a mapping of its fields. (values templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :raises ConfigurationError: the policy has an unknown field, or lacks a required field.
    """

    template_fields: Sequence[str] = ("policy", "source_conn_id", "target_conn_id")
    template_fields_renderers = {"policy": "json"}

    def __init__(
        self,
        *,
        policy: ReplicationPolicy | Mapping[str, object],
        source_conn_id: str,
        target_conn_id: str,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.policy = policy_fields(policy)
        self.source_conn_id = source_conn_id
        self.target_conn_id = target_conn_id

    @property
    def subject(self) -> str:
        """The database of the target."""
        target = self.policy.get("target_database")
        return str(self.policy["source_database"] if target in {None, "", "None"} else target)

    def ends(self) -> tuple[HiveMetastoreHook, HiveMetastoreHook, ReplicationPolicy]:
        """Return the hooks of source and target, and the policy with the storage options of both."""
        source, target = HiveMetastoreHook(self.source_conn_id), HiveMetastoreHook(self.target_conn_id)
        return source, target, rendered_policy(self.policy, common_storage_options(source, target))


class SparkReplicationOperator(SparkOperator, ReplicationOperator):
    """Base of the operators that use both ends, and Spark to work on their files.

    :param policy: a :class:`ReplicationPolicy`, or a mapping of its fields. (values templated)
    :param source_conn_id: the connection of the source's metastore. (templated)
    :param target_conn_id: the connection of the target's metastore. (templated)
    :param spark_conn_id: the connection of the apache-spark provider. (templated)
    :param spark_conf: Spark properties of the job. (values templated)
    :param deferrable: leave the worker slot while a job works on a cluster, which needs deploy mode
        ``cluster``; by default if Airflow's ``[operators] default_deferrable`` is set, and the task can.
    :raises ConfigurationError: the policy has an unknown field, or lacks a required field.
    """

    template_fields: Sequence[str] = (*ReplicationOperator.template_fields, "spark_conn_id", "spark_conf")
    template_fields_renderers = {**ReplicationOperator.template_fields_renderers, "spark_conf": "json"}
    operator_extra_links = (*PolicyOperator.operator_extra_links, SparkLink())

    def __init__(
        self,
        *,
        spark_conn_id: str = "spark_default",
        spark_conf: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.spark_conn_id = spark_conn_id
        self.spark_conf = {} if spark_conf is None else mapping("spark_conf", spark_conf)

    def spark(self, policy: ReplicationPolicy) -> SparkPipelineHook:
        """Return the Spark hook with the policy's storage options, whose job :meth:`on_kill` stops."""
        return self.spark_hook(policy.storage_options, self.spark_conf)

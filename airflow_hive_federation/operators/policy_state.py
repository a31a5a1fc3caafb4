"""Lets the tasks of a policy publish its state, for the page in Airflow."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import VerificationError, VerificationIncompleteError
from airflow_hive_federation.hooks.error_translation import origin_of
from airflow_hive_federation.hooks.group_fields import rendered_group
from airflow_hive_federation.hooks.published import (
    Log,
    StatePublished,
    policy_publisher,
    publication,
    publish_cycle,
    publish_failure,
    publisher_of,
)
from airflow_hive_federation.operators.page_links import PolicyLink, ReplicationLink
from airflow_hive_federation.operators.results import ResultOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.metastore import MetastorePool
    from airflow_hive_federation.replication.failover_results import FailoverResult
    from airflow_hive_federation.replication.group_policy import ReplicationGroup
    from airflow_hive_federation.replication.load.summary import LoadSummary
    from airflow_hive_federation.replication.policy import ReplicationPolicy
    from airflow_hive_federation.replication.verify.report import VerificationReport


class PolicyOperator(ResultOperator):
    """Base of the operators of a policy, which publish its state.

    A publication that fails is a warning in the task's log, and fails no task.
    """

    operator_extra_links = (PolicyLink(),)
    policy: Mapping[str, object]

    def watched(self, context: Context) -> FailuresPublished:
        """Publish the error with which the task ends."""
        return FailuresPublished(lambda: [self.policy], context, self.log)

    def publish_cycle(
        self,
        context: Context,
        source: MetastorePool,
        target: MetastorePool,
        policy: ReplicationPolicy,
        *,
        skipped: Mapping[str, str] | None,
    ) -> None:
        """Publish the cycle that has ended.

        :param skipped: the tables that the cycle left out, with the reasons; ``None`` if nobody looked.
        """
        publish_cycle(source, target, policy, skipped=skipped, by=publisher_of(context), log=self.log)

    def publish_verification(
        self, context: Context, policy: ReplicationPolicy, report: VerificationReport, *, whole: bool
    ) -> None:
        """Publish a verification."""
        with publication(self.log):
            policy_publisher(policy, publisher_of(context)).verification(report, whole=whole)

    def publish_failover(self, context: Context, policy: ReplicationPolicy, result: FailoverResult) -> None:
        """Publish a failover, after which the policy has no more cycles."""
        with publication(self.log):
            policy_publisher(policy, publisher_of(context)).failover(result.event_id)


class GroupStateOperator(ResultOperator):
    """Base of the operators of a consistency group, which publish the state of each member's policy."""

    operator_extra_links = (ReplicationLink(),)
    group: Mapping[str, object]

    def watched(self, context: Context) -> FailuresPublished:
        """Publish the error with which the task ends, for each member."""
        return FailuresPublished(self._members, context, self.log)

    def publish_cycles(
        self,
        context: Context,
        source: MetastorePool,
        target: MetastorePool,
        group: ReplicationGroup,
        loads: Sequence[LoadSummary],
    ) -> None:
        """Publish the cycles of the members that have ended."""
        policies = {policy.target_database: policy for policy in group.policies}
        for load in loads:
            policy, skipped = policies[load.database], None if load.idle else load.skipped
            publish_cycle(source, target, policy, skipped=skipped, by=publisher_of(context), log=self.log)

    def publish_verifications(
        self, context: Context, group: ReplicationGroup, reports: Sequence[VerificationReport]
    ) -> None:
        """Publish the verifications of the members."""
        policies = {policy.target_database: policy for policy in group.policies}
        with publication(self.log):
            for report in reports:
                publisher = policy_publisher(policies[report.database], publisher_of(context))
                publisher.verification(report, whole=False)

    def _members(self) -> Sequence[Mapping[str, object]]:
        return [policy.to_json() for policy in rendered_group(self.group, {}).policies]


class FailuresPublished(StatePublished):
    """Publishes the error with which a block ends, for each policy that the block works for.

    :param policies: returns the fields of the policies.
    """

    def __init__(
        self, policies: Callable[[], Sequence[Mapping[str, object]]], context: Context, log: Log
    ) -> None:
        super().__init__(log)
        self._policies = policies
        self._context = context
        self._began_s = time.time()

    def _failed(self, error: Exception) -> None:
        # The verification has published its differences.
        if isinstance(origin_of(error), VerificationError | VerificationIncompleteError):
            return
        seconds, by = time.time() - self._began_s, publisher_of(self._context)
        for policy in self._policies():
            publish_failure(policy, error, by, seconds=seconds, log=self._log)

"""Lets the tasks of a policy publish its state, for the page in Airflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_hive_federation.hooks.group_fields import rendered_group
from airflow_hive_federation.hooks.page_links import DumpLink, PolicyLink, ReplicationLink
from airflow_hive_federation.hooks.published import (
    FailuresPublished,
    policy_publisher,
    publication,
    publish_cycle,
    publisher_of,
)
from airflow_hive_federation.hooks.published_waits import publishing_waits
from airflow_hive_federation.operators.results import ResultOperator

if TYPE_CHECKING:
    from airflow.sdk import BaseOperatorLink, Context

    from airflow_hive_federation.metastore import MetastorePool
    from airflow_hive_federation.progress.observers import Observer
    from airflow_hive_federation.replication.failover_results import FailoverResult
    from airflow_hive_federation.replication.group_policy import ReplicationGroup
    from airflow_hive_federation.replication.load.summary import LoadSummary
    from airflow_hive_federation.replication.policy import ReplicationPolicy
    from airflow_hive_federation.replication.verify.report import VerificationReport


class _DumpLinked(ResultOperator):
    """Base of the operators that link to a dump."""

    #: The web page of the task's dump; empty if the store has none.
    dump_url = ""

    def note_dump(self, dump: str, policy: ReplicationPolicy) -> None:
        """Note the dump that the task has written or uses, for its link."""
        from airflow_hive_federation.storage.web_addresses import web_address

        self.dump_url = web_address(dump, policy.storage_options)


class PolicyOperator(_DumpLinked):
    """Base of the operators of a policy, which publish its state.

    A publication that fails is a warning in the task's log, and fails no task.
    """

    operator_extra_links: Sequence[BaseOperatorLink] = (PolicyLink(), DumpLink())
    policy: Mapping[str, object]

    def watched(self, context: Context) -> FailuresPublished:
        """Publish the error with which the task ends."""
        return FailuresPublished(lambda: [self.policy], context, self.log)

    def wait_observer(self, context: Context) -> Observer:
        """Return the observer of a task that waits for open transactions itself: it publishes the wait."""
        return publishing_waits(self.observer, lambda: [self.policy], publisher_of(context), self.log)

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


class GroupStateOperator(_DumpLinked):
    """Base of the operators of a consistency group, which publish the state of each member's policy.

    They link to one dump: the one that holds the record of the group, or the first after a bootstrap.
    """

    operator_extra_links: Sequence[BaseOperatorLink] = (ReplicationLink(), DumpLink())
    group: Mapping[str, object]

    def watched(self, context: Context) -> FailuresPublished:
        """Publish the error with which the task ends, for each member."""
        return FailuresPublished(self._members, context, self.log)

    def wait_observer(self, context: Context) -> Observer:
        """Return the observer of a task that waits for open transactions: it publishes each member's wait."""
        return publishing_waits(self.observer, self._members, publisher_of(context), self.log)

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
        self,
        context: Context,
        group: ReplicationGroup,
        reports: Sequence[VerificationReport],
        *,
        whole: bool,
    ) -> None:
        """Publish the verifications of the members.

        :param whole: all tables were compared, so that others do not exist any more.
        """
        policies = {policy.target_database: policy for policy in group.policies}
        with publication(self.log):
            for report in reports:
                publisher = policy_publisher(policies[report.database], publisher_of(context))
                publisher.verification(report, whole=whole)

    def _members(self) -> Sequence[Mapping[str, object]]:
        return [policy.to_json() for policy in rendered_group(self.group, {}).policies]

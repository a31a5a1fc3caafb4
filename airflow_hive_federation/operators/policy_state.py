"""Lets the tasks of a policy publish its state, for the page in Airflow, and link to it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from airflow.sdk import BaseOperatorLink

from airflow_hive_federation.errors import VerificationError, VerificationIncompleteError
from airflow_hive_federation.hooks.compat import AirflowSkipException, configured
from airflow_hive_federation.hooks.published import (
    Log,
    names_in,
    policy_publisher,
    publication,
    publish_cycle,
    publish_failure,
    publisher_of,
)
from airflow_hive_federation.operators.results import ResultOperator

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_hive_federation.metastore import MetastorePool
    from airflow_hive_federation.replication.failover_results import FailoverResult
    from airflow_hive_federation.replication.policy import ReplicationPolicy
    from airflow_hive_federation.replication.verify.report import VerificationReport


class PolicyLink(BaseOperatorLink):
    """A link from a task of a policy to the policy on the page Hive federation."""

    name = "Hive federation"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:
        """Return the URL of the policy on the page; Airflow calls this at the end of the task."""
        from airflow_hive_federation.published.directory import policy_key

        key = policy_key(names_in(getattr(operator, "policy", None) or {}))
        return f"{configured('api', 'base_url', '/').rstrip('/')}/plugin/hive-federation?policy={key}"


class PolicyOperator(ResultOperator):
    """Base of the operators of a policy, which publish its state.

    A publication that fails is a warning in the task's log, and fails no task.
    """

    operator_extra_links = (PolicyLink(),)
    policy: Mapping[str, object]

    def watched(self, context: Context) -> FailuresPublished:
        """Publish the error with which the task ends."""
        return FailuresPublished(self, context)

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


class PolicyTask(Protocol):
    """A task of a policy."""

    @property
    def policy(self) -> Mapping[str, object]: ...

    @property
    def log(self) -> Log: ...


class FailuresPublished(AbstractContextManager[None]):
    """Publishes the error with which a block ends, and lets it pass.

    :param task: the task that the block belongs to.
    """

    def __init__(self, task: PolicyTask, context: Context) -> None:
        self._task = task
        self._context = context
        self._began_s = time.time()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A deferral is no Exception, and neither is the end of a process.
        if not isinstance(error, Exception) or isinstance(error, AirflowSkipException):
            return
        # The verification has published what it has found.
        if isinstance(error.__cause__, VerificationError | VerificationIncompleteError):
            return
        publish_failure(
            self._task.policy,
            error,
            publisher_of(self._context),
            seconds=time.time() - self._began_s,
            log=self._task.log,
        )

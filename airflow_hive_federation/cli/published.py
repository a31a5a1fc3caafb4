"""Publishes what commands learn about a policy, if the environment names the directory of the state."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from airflow_hive_federation.cli.airflow_logs import log_to_stderr
from airflow_hive_federation.errors import (
    HiveFederationError,
    VerificationError,
    VerificationIncompleteError,
    divided,
)
from airflow_hive_federation.progress.cycle_events import CycleFailed, CycleFollowed, FollowEnded, LagSeen
from airflow_hive_federation.progress.events import Event

if TYPE_CHECKING:
    from airflow_hive_federation.clusters.assignment import AssignReport
    from airflow_hive_federation.clusters.look import TableLook
    from airflow_hive_federation.clusters.registry import ClusterRegistry
    from airflow_hive_federation.clusters.routing.decision import Decision
    from airflow_hive_federation.clusters.running import LiveRouter
    from airflow_hive_federation.hooks.published_clusters import ClusterStatePublished
    from airflow_hive_federation.hooks.published_work import CompactionStatePublished, IngestStatePublished
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool
    from airflow_hive_federation.progress.observers import Observer
    from airflow_hive_federation.published.policies import PolicyPublisher
    from airflow_hive_federation.published.remotes import RemotePublisher
    from airflow_hive_federation.remotes.reports import RefreshReport
    from airflow_hive_federation.remotes.session import Remotes
    from airflow_hive_federation.replication.policy import ReplicationPolicy
    from airflow_hive_federation.replication.status import ReplicationStatus
    from airflow_hive_federation.replication.verify.report import VerificationReport

#: The environment variable that names the directory; without it, commands publish nothing.
STATE_VARIABLE = "AIRFLOW__HIVE_FEDERATION__STATE_URI"

#: Seconds between two publications of a follower, whose cycles may take less than one.
_FOLLOWED_S = 10.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CommandState:
    """Publishes the state of a policy for one command; every error is a warning.

    :param command: the command, such as ``replicate run``.
    """

    policy: ReplicationPolicy
    command: str

    def status(self, status: ReplicationStatus) -> None:
        """Publish the result of a look at both sides."""
        self._publish(lambda publisher: publisher.status(status))

    def cycle(self, source: MetastorePool, target: MetastorePool, skipped: Mapping[str, str] | None) -> None:
        """Publish a cycle that has ended, and the lags after it.

        :param skipped: the tables that the cycle left out; ``None`` if nobody looked.
        """
        if not _publishes():
            return
        from airflow_hive_federation.hooks.published import publish_cycle
        from airflow_hive_federation.published.documents import Publisher

        by = Publisher(command=self.command)
        publish_cycle(source, target, self.policy, skipped=skipped, by=by, log=logger)

    def verification(self, report: VerificationReport, *, whole: bool) -> None:
        """Publish a verification.

        :param whole: files and rows of all tables were compared.
        """
        self._publish(lambda publisher: publisher.verification(report, whole=whole))

    def failover(self, event_id: int) -> None:
        """Publish a failover, after which the policy has no more cycles.

        :param event_id: last event of the target.
        """
        self._publish(lambda publisher: publisher.failover(event_id))

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Publish the error with which a block ends."""
        began_s = time.time()
        try:
            yield
        except (VerificationError, VerificationIncompleteError):
            raise
        except HiveFederationError as error:
            seconds, failed = time.time() - began_s, error
            self._publish(lambda publisher: publisher.failure(*_described(failed), seconds=seconds))
            raise

    def waiting(self, observer: Observer) -> Observer:
        """Return an observer that also publishes the command's waits for open transactions.

        :param observer: receives every event first.
        """
        return waiting([self], observer)

    def following(self, source: MetastorePool, target: MetastorePool, observer: Observer) -> Observer:
        """Return an observer that also publishes a follower's failures, and its cycles every ten seconds.

        A cycle that ends within ten seconds of a publication is published later, at the follower's next
        look or cycle.

        :param observer: receives every event first.
        """
        if not _publishes():
            return observer
        observer = self.waiting(observer)
        unpublished, due_s = False, 0.0

        def observe(event: Event) -> None:
            nonlocal unpublished, due_s
            observer(event)
            if isinstance(event, CycleFailed):
                message, remedy = divided(event.error)
                self._publish(lambda publisher: publisher.failure(message, remedy, seconds=0.0))
            unpublished = unpublished or isinstance(event, CycleFollowed)
            between = isinstance(event, CycleFollowed | LagSeen) and time.monotonic() >= due_s
            if unpublished and (between or isinstance(event, FollowEnded)):
                self.cycle(source, target, None)
                unpublished, due_s = False, time.monotonic() + _FOLLOWED_S

        return observe

    def _publish(self, publish: Callable[[PolicyPublisher], None]) -> None:
        if not _publishes():
            return
        from airflow_hive_federation.hooks.published import policy_publisher, publication
        from airflow_hive_federation.published.documents import Publisher

        with publication(logger):
            publish(policy_publisher(self.policy, Publisher(command=self.command)))


@contextmanager
def failures(states: Sequence[CommandState]) -> Iterator[None]:
    """Publish the error with which a block ends, for each of several policies."""
    with ExitStack() as stack:
        for state in states:
            stack.enter_context(state.failures())
        yield


def waiting(states: Sequence[CommandState], observer: Observer) -> Observer:
    """Return an observer that also publishes one command's waits for open transactions, for several policies.

    :param observer: receives every event first.
    """
    if not _publishes():
        return observer
    from airflow_hive_federation.hooks.published_waits import publishing_waits
    from airflow_hive_federation.published.documents import Publisher

    policies = [state.policy.to_json() for state in states]
    return publishing_waits(observer, lambda: policies, Publisher(command=states[0].command), logger)


def _publishes() -> bool:
    """Return whether commands publish state, for which they use Airflow."""
    if STATE_VARIABLE not in os.environ:
        return False
    log_to_stderr()
    return True


def _described(error: HiveFederationError) -> tuple[str, str]:
    from airflow_hive_federation.hooks.published import described

    return described(error)


@contextmanager
def published_refresh(metastore: str, remote: str) -> Iterator[Callable[[Remotes, RefreshReport], None]]:
    """Publish the error of a refresh with which the block ends; yield a function that publishes its report.

    :param metastore: the local metastore: URIs, or the id of an Airflow connection.
    :param remote: the local name of the remote.
    """

    def publish(remotes: Remotes, report: RefreshReport) -> None:
        def to_publisher(publisher: RemotePublisher) -> None:
            from airflow_hive_federation.remotes.statement import Kind, parse_name

            kind = Kind.TABLE if "." in report.remote else Kind.DATABASE
            link = remotes.link(kind, parse_name(kind, report.remote))
            publisher.refresh(report, points_to=str(link.remote), via=link.via or "")

        _publish_remote(metastore, report.remote, to_publisher)

    try:
        yield publish
    except HiveFederationError as error:
        failed = error
        _publish_remote(metastore, remote, lambda to: to.failure(*_described(failed)))
        raise


def _publish_remote(metastore: str, remote: str, publish: Callable[[RemotePublisher], None]) -> None:
    if not _publishes():
        return
    from airflow_hive_federation.hooks.published import publication, state_directory
    from airflow_hive_federation.published.documents import Publisher
    from airflow_hive_federation.published.remotes import RemotePublisher

    with publication(logger):
        publish(
            RemotePublisher(
                state_directory(),
                metastore=metastore,
                remote=remote.lower(),
                kind="table" if "." in remote else "database",
                by=Publisher(command="remote refresh"),
            )
        )


def ingest_state(metastore: str, table: str) -> IngestStatePublished | None:
    """Return the publisher of a run of ``ingest``; ``None`` if commands publish nothing.

    :param metastore: the metastore: URIs, or the id of an Airflow connection.
    """
    if not _publishes():
        return None
    from airflow_hive_federation.hooks.published_work import IngestStatePublished
    from airflow_hive_federation.published.documents import Publisher

    by = Publisher(command="ingest")
    return IngestStatePublished(metastore=metastore, table=table, source="files", by=by, log=logger)


def compaction_state(
    metastore: str, command: str, client: Callable[[], AbstractContextManager[MetastoreClient]]
) -> CompactionStatePublished | None:
    """Return the publisher of compactions and of their queue; ``None`` if commands publish nothing.

    :param metastore: the metastore: URIs, or the id of an Airflow connection.
    :param command: the command, such as ``compact worker``.
    :param client: opens a client of the metastore.
    """
    if not _publishes():
        return None
    from airflow_hive_federation.hooks.published_work import CompactionStatePublished
    from airflow_hive_federation.published.documents import Publisher

    by = Publisher(command=command)
    return CompactionStatePublished(metastore=metastore, client=client, by=by, log=logger)


class ClusterState:
    """Publishes nothing about clusters; without a directory, commands do not import Airflow for it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the block."""

    def looked(self, client: MetastoreClient, registry: ClusterRegistry, table: str) -> None:
        """Look at no table."""

    def assigned(self, report: AssignReport, registry: ClusterRegistry) -> None:
        """Publish no assignment."""

    def looked_at_all(self, database: str, looks: Sequence[TableLook]) -> None:
        """Publish no tables."""


def cluster_state(metastore: str, command: str, table: str = "") -> ClusterState | ClusterStatePublished:
    """Return the publisher of the state of clusters, and of the error with which its block ends.

    :param metastore: the metastore: URIs, or the id of an Airflow connection.
    :param command: the command, such as ``cluster copy``.
    :param table: the table that the command works on; empty for several ones.
    """
    return _cluster_state(metastore, command, table) if _publishes() else ClusterState()


@contextmanager
def published_routes(router: LiveRouter, metastore: str) -> Iterator[Callable[[Decision, str], None]]:
    """Publish the decisions that the block gives to the function, with the reasons of refusals.

    :param metastore: the metastore: URIs, or the id of an Airflow connection.
    """
    if not _publishes():
        yield lambda *_: None
        return
    from airflow_hive_federation.hooks.published_clusters import RoutesPublished

    with RoutesPublished(router, _cluster_state(metastore, "route"), logger) as published:
        yield published.note


def _cluster_state(metastore: str, command: str, table: str = "") -> ClusterStatePublished:
    from airflow_hive_federation.hooks.published_clusters import ClusterStatePublished
    from airflow_hive_federation.published.documents import Publisher

    return ClusterStatePublished(logger, metastore=metastore, by=Publisher(command=command), table=table)

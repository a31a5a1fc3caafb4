"""Provides the probes of the waits in Airflow: one per awaited thing, for operators, sensors and triggers.

A probe opens its own connections for each call, because nothing would close kept ones when a triggerer drops
a trigger. Its fields are values of JSON, which a trigger stores in Airflow's database.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow_hive_federation.errors import HiveFederationError, StorageCredentialsExpiredError
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook, common_storage_options
from airflow_hive_federation.hooks.policy_fields import rendered_policy
from airflow_hive_federation.hooks.published import publish_lags, publish_wait
from airflow_hive_federation.hooks.remotes import remotes_of
from airflow_hive_federation.progress.events import (
    Event,
    RemoteChecked,
    TargetBehind,
    TargetUnpublished,
)
from airflow_hive_federation.progress.job_events import SparkJobSeen
from airflow_hive_federation.progress.observers import Observer
from airflow_hive_federation.progress.reading import event_of
from airflow_hive_federation.progress.words import words
from airflow_hive_federation.runtime.arguments import choice

if TYPE_CHECKING:
    from airflow_hive_federation.hooks.job_runs import RunOver
    from airflow_hive_federation.spark.runs import RunFiles

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: Seconds within which an application begins, if the cluster does not know of it.
_BEGIN_S = 3600.0
#: Seconds between two heartbeats of a lease; metastores end one after five minutes without.
_HEARTBEAT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class ProbeAnswer:
    """The answer of a probe; it is true if the wait is over.

    :param ready: the awaited thing has happened.
    :param state: the present state, for logs and for the error of a timeout.
    :param value: the present state, as a value of JSON.
    """

    ready: bool
    state: Event
    value: Any = None

    def __bool__(self) -> bool:
        return self.ready

    @property
    def description(self) -> str:
        """The present state in words."""
        return words(self.state)

    def to_json(self) -> dict[str, Any]:
        """Return the answer as values of JSON."""
        return {"ready": self.ready, "state": self.state.to_json(), "value": self.value}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ProbeAnswer:
        """Return the answer that :meth:`to_json` wrote.

        :raises ValueError: a field is missing, or the state is that of another version.
        """
        if missing := {"ready", "state", "value"} - values.keys():
            raise ValueError(f"The answer {values!r} lacks {', '.join(sorted(missing))}.")
        return cls(ready=values["ready"], state=event_of(values["state"]), value=values["value"])


@dataclass(frozen=True, kw_only=True)
class Probe(ABC):
    """Base of the probes; ``kind`` names the class in a stored trigger."""

    kind: ClassVar[str]

    @abstractmethod
    def __call__(self) -> ProbeAnswer:
        """Look at the present state.

        :raises HiveFederationError: a metastore refuses, or does not answer.
        """

    def stop(self) -> None:  # noqa: B027 - most awaited things are the work of others
        """End the awaited work, if the task that waits has begun it.

        :raises HiveFederationError: the request cannot be made.
        """

    def to_json(self) -> dict[str, Any]:
        """Return the fields, from which :func:`probe_of` makes the probe again."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class DrainProbe(Probe):
    """Looks whether the transactions of a drain have ended; the value is ``start``.

    :param source_conn_id: the connection of the source's metastore.
    :param start: the result of :meth:`DrainStart.to_json`.
    :param policy: the fields of the policy whose wait is published for the page in Airflow.
    :param by: the task instance that publishes it; ``None`` publishes nothing.
    """

    kind = "drain"
    source_conn_id: str
    start: dict[str, Any]
    policy: Mapping[str, object] | None = None
    by: Mapping[str, object] | None = None

    def __call__(self) -> ProbeAnswer:
        from airflow_hive_federation.replication.dump.drain import DrainStart, state_of, still_open

        start = DrainStart.from_json(self.start)
        with self._hook.client() as client:
            remaining = still_open(client, start)
        answer = ProbeAnswer(ready=not remaining, state=state_of(start, remaining), value=self.start)
        if remaining and self._published != [answer.description]:
            self._published[:] = [answer.description]
            if self.policy is not None and self.by is not None:
                publish_wait(self.policy, answer.description, self.by, logger)
        return answer

    @cached_property
    def _published(self) -> list[str]:
        """The words that were published last: each look that finds the same publishes nothing."""
        return []

    @cached_property
    def _hook(self) -> HiveMetastoreHook:
        return HiveMetastoreHook(self.source_conn_id)


@dataclass(frozen=True, kw_only=True)
class LagProbe(Probe):
    """Looks whether a target is close enough to its source; the value is the lag, ``{"events", "seconds"}``.

    The value is ``None`` while the target is not published.

    :param policy: the fields of the policy.
    :param source_conn_id: the connection of the source's metastore.
    :param target_conn_id: the connection of the target's metastore.
    :param max_lag_s: the age, in seconds, that the oldest missing event may have.
    :param max_lag_events: the number of events that may be missing; ``None`` for any number.
    :param by: the task instance that publishes each lag for the page in Airflow; ``None`` publishes nothing.
    """

    kind = "lag"
    policy: dict[str, Any]
    source_conn_id: str
    target_conn_id: str
    max_lag_s: float
    max_lag_events: int | None
    by: Mapping[str, object] | None = None

    def __call__(self) -> ProbeAnswer:
        from airflow_hive_federation.replication.status import read_lags

        hooks = HiveMetastoreHook(self.source_conn_id), HiveMetastoreHook(self.target_conn_id)
        policy = rendered_policy(self.policy, common_storage_options(*hooks))
        with hooks[0].client() as source, hooks[1].client() as target:
            lags = read_lags(source, target, policy)
        if lags is None:
            return ProbeAnswer(ready=False, state=TargetUnpublished(database=policy.target_database))
        if self.by is not None:
            publish_lags(policy, lags, self.by, logger)
        lag = lags.total
        near = lag.seconds <= self.max_lag_s
        few = self.max_lag_events is None or lag.events <= self.max_lag_events
        return ProbeAnswer(
            ready=near and few,
            state=TargetBehind(database=policy.target_database, events=lag.events, seconds=lag.seconds),
            value=asdict(lag),
        )


@dataclass(frozen=True, kw_only=True)
class RemoteProbe(Probe):
    """Looks whether a remote has a partition or, without one to look for, whether it has changed.

    :param metastore_conn_id: the connection of the local metastore.
    :param database: the database of a table whose name contains none.
    :param remote: the local name of the remote.
    :param remote_kind: ``table`` or ``database``.
    :param partition: the name of the partition.
    :param where: a condition on partition keys.
    """

    kind = "remote"
    metastore_conn_id: str
    database: str
    remote: str
    remote_kind: str
    partition: str | None = None
    where: str | None = None

    def __call__(self) -> ProbeAnswer:
        from airflow_hive_federation.remotes.probes import happened
        from airflow_hive_federation.remotes.statement import Kind, parse_name

        kind = choice("kind", self.remote_kind, Kind)
        name = parse_name(kind, self.remote)
        with remotes_of(self.metastore_conn_id, database=self.database) as remotes:
            ready = happened(remotes, kind, name, partition=self.partition, where=self.where)
        state = RemoteChecked(
            remote=self.remote,
            ready=ready,
            partition=self.partition or self.where or "",
            condition=not self.partition,
        )
        return ProbeAnswer(ready=ready, state=state)


@dataclass(frozen=True, kw_only=True)
class JobProbe(Probe):
    """Looks whether a Spark job on a cluster has ended, and keeps the leases of the task that has left it.

    It reads the two files of the job's run, and asks YARN for an application that has not begun.

    :param report: URI of the job's report.
    :param attempt: id of the submission.
    :param spark_conn_id: the connection of the apache-spark provider.
    :param metastore_conn_ids: the connections whose storage options open the store of the report.
    :param leases: read transactions to keep alive, each with the connection of its metastore.
    """

    kind = "job"
    report: str
    attempt: str
    spark_conn_id: str
    metastore_conn_ids: Sequence[str]
    leases: Sequence[tuple[str, int]] = ()

    def __call__(self) -> ProbeAnswer:
        self._keep_leases()
        return self._with_credentials(self._look_at_run)

    def stop(self) -> None:
        """Ask the job to end, wherever its driver is."""
        self._with_credentials(lambda: self._files.stop(self.attempt))

    def _with_credentials(self, call: Callable[[], T]) -> T:
        """Call once more with new options if the credentials have expired: a role's last for an hour."""
        try:
            return call()
        except StorageCredentialsExpiredError:
            self.__dict__.pop("_files")
            self._look.use(self._files)
            return call()

    def _look_at_run(self) -> ProbeAnswer:
        from airflow_hive_federation.spark.runs import JobState

        run = self._files.run()
        has_it = run is not None and run.attempt == self.attempt
        application = run.application if run is not None and has_it else ""
        stopped = run is not None and run.stopped
        state = self._look.state(application, stopped=stopped) if has_it else JobState.ENDED
        return ProbeAnswer(
            ready=state is JobState.ENDED,
            state=SparkJobSeen(application=application, report=self.report, state=state.value),
        )

    @cached_property
    def _files(self) -> RunFiles:
        from airflow_hive_federation.spark.runs import RunFiles

        hooks = [HiveMetastoreHook(conn_id) for conn_id in self.metastore_conn_ids]
        return RunFiles(self.report, common_storage_options(hooks[0], hooks[-1]) if hooks else None)

    @cached_property
    def _look(self) -> RunOver:
        from airflow_hive_federation.hooks.job_runs import RunOver

        def alive(application: str) -> bool | None:
            from airflow_hive_federation.hooks.pipeline_submit import PipelineSubmitHook

            return PipelineSubmitHook(conn_id=self.spark_conn_id).has(application)

        return RunOver(self._files, self.attempt, alive=alive, begin_s=_BEGIN_S)

    @cached_property
    def _kept_at_s(self) -> dict[int, float]:
        return {}

    def _keep_leases(self) -> None:
        """Send the heartbeats that are due; without them, the copy fails if the cleaner removes its files."""
        from airflow_hive_federation.transactions.lease import keep_lease

        for number, (conn_id, txn_id) in enumerate(self.leases):
            if time.monotonic() - self._kept_at_s.get(number, -_HEARTBEAT_S) < _HEARTBEAT_S:
                continue
            try:
                with HiveMetastoreHook(conn_id).client() as client:
                    keep_lease(client, txn_id)
            except HiveFederationError as error:
                logger.warning("Read transaction %d of %s is not kept: %s", txn_id, conn_id, error)
            else:
                self._kept_at_s[number] = time.monotonic()


_PROBES: Mapping[str, type[Probe]] = {
    probe.kind: probe for probe in (DrainProbe, JobProbe, LagProbe, RemoteProbe)
}


def probe_of(kind: str, fields: Mapping[str, object]) -> Probe:
    """Return the probe of a stored trigger."""
    return _PROBES[kind](**fields)


def observed(probe: Probe, observer: Observer) -> Callable[[], ProbeAnswer]:
    """Return a function that calls the probe and reports the state that it finds.

    :param observer: receives the state.
    """

    def look() -> ProbeAnswer:
        answer = probe()
        observer(answer.state)
        return answer

    return look

"""Provides the probes of the waits in Airflow: one per awaited thing, for operators, sensors and triggers.

A probe opens its own connections for each call, because nothing would close kept ones when a triggerer drops
a trigger. Its fields are values of JSON, which a trigger stores in Airflow's database.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.policy_fields import rendered_policy
from airflow_hive_federation.hooks.remotes import remotes_of


@dataclass(frozen=True, kw_only=True)
class ProbeAnswer:
    """The answer of a probe; it is true if the wait is over.

    :param ready: the awaited thing has happened.
    :param description: the present state, for logs and for the error of a timeout.
    :param value: the present state, as a value of JSON.
    """

    ready: bool
    description: str
    value: Any = None

    def __bool__(self) -> bool:
        return self.ready


@dataclass(frozen=True, kw_only=True)
class Probe(ABC):
    """Base of the probes; ``kind`` names the class in a stored trigger."""

    kind: ClassVar[str]

    @abstractmethod
    def __call__(self) -> ProbeAnswer:
        """Look at the present state.

        :raises HiveFederationError: a metastore refuses, or does not answer.
        """

    def to_json(self) -> dict[str, Any]:
        """Return the fields, from which :func:`probe_of` makes the probe again."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class DrainProbe(Probe):
    """Looks whether the transactions of a drain have ended; the value is ``start``.

    :param source_conn_id: the connection of the source's metastore.
    :param start: the result of :meth:`DrainStart.to_json`.
    """

    kind = "drain"
    source_conn_id: str
    start: dict[str, Any]

    def __call__(self) -> ProbeAnswer:
        from airflow_hive_federation.replication.dump.drain import DrainStart, still_open

        start = DrainStart.from_json(self.start)
        with self._hook.client() as client:
            remaining = still_open(client, start)
        text = f"Still open: {', '.join(map(str, remaining))}" if remaining else "All transactions have ended"
        return ProbeAnswer(ready=not remaining, description=text, value=self.start)

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
    """

    kind = "lag"
    policy: dict[str, Any]
    source_conn_id: str
    target_conn_id: str
    max_lag_s: float
    max_lag_events: int | None

    def __call__(self) -> ProbeAnswer:
        from airflow_hive_federation.replication.status import read_lag

        policy = rendered_policy(self.policy, {})
        with (
            HiveMetastoreHook(self.source_conn_id).client() as source,
            HiveMetastoreHook(self.target_conn_id).client() as target,
        ):
            lag = read_lag(source, target, policy)
        if lag is None:
            return ProbeAnswer(ready=False, description="The target is not published yet")
        near = lag.seconds <= self.max_lag_s
        few = self.max_lag_events is None or lag.events <= self.max_lag_events
        return ProbeAnswer(
            ready=near and few,
            description=f"The target is behind by {lag.events} events, {lag.seconds:.0f} s",
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

        kind = Kind(self.remote_kind)
        name = parse_name(kind, self.remote)
        with remotes_of(self.metastore_conn_id, database=self.database) as remotes:
            ready = happened(remotes, kind, name, partition=self.partition, where=self.where)
        return ProbeAnswer(ready=ready, description=f"{self.remote}: {self._state(ready)}")

    def _state(self, ready: bool) -> str:
        if self.partition:
            return f"partition {self.partition} {'exists' if ready else 'does not exist'}"
        if self.where:
            return f"{'a' if ready else 'no'} partition with {self.where} exists"
        return "the remote has changed" if ready else "the remote has not changed"


_PROBES: Mapping[str, type[Probe]] = {probe.kind: probe for probe in (DrainProbe, LagProbe, RemoteProbe)}


def probe_of(kind: str, fields: Mapping[str, Any]) -> Probe:
    """Return the probe of a stored trigger."""
    return _PROBES[kind](**fields)


def logged(probe: Probe, log: Any) -> Callable[[], ProbeAnswer]:
    """Return a function that calls the probe and logs the state that it finds.

    :param log: the logger of a task or a trigger.
    """

    def look() -> ProbeAnswer:
        answer = probe()
        log.info("%s", answer.description)
        return answer

    return look

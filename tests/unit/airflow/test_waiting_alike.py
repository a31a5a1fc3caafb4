"""One wait at every place: the same answers of a probe give the same result and the same error.

The places are a loop in an operator, a sensor that pokes, a sensor that is rescheduled, and a trigger.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError, HiveFederationError, MetastoreUnreachableError
from airflow_hive_federation.hooks import probes
from airflow_hive_federation.hooks.compat import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from airflow_hive_federation.hooks.error_translation import as_airflow_error
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.probes import LagProbe, ProbeAnswer, RemoteProbe, probe_of
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.pool import MetastorePool
from airflow_hive_federation.operators import failover as failover_operators
from airflow_hive_federation.operators.failover import FailoverStartOperator
from airflow_hive_federation.progress.events import TransactionsEnded, TransactionsOpen
from airflow_hive_federation.remotes import probes as remote_probes
from airflow_hive_federation.remotes.statement import Kind
from airflow_hive_federation.replication import failover
from airflow_hive_federation.replication.dump import drain
from airflow_hive_federation.replication.dump.drain import DrainStart
from airflow_hive_federation.replication.policy import DRAIN_POLL
from airflow_hive_federation.sensors.remote import RemotePartitionSensor
from airflow_hive_federation.sensors.replication import ReplicationLagSensor
from airflow_hive_federation.sensors.transactions import OpenTransactionsDrainSensor
from airflow_hive_federation.sensors.waiting import ProbeSensor
from airflow_hive_federation.triggers.waiting import ProbeTrigger
from tests.support.metastore_peers import HangUp, Peer, Thrift

Define = Callable[..., str]
Place = Callable[[Callable[..., Any]], Any]

POLICY = {"name": "shop", "source_database": "shop", "dump_root": "/dumps"}
VALUE = {"events": 1, "seconds": 2.0}
READY = ProbeAnswer(ready=True, state=TransactionsEnded(database="shop"), value=VALUE)
FAR = ProbeAnswer(ready=False, state=TransactionsOpen(database="shop", transactions=(3, 4)), value=None)
AWAY = MetastoreUnreachableError("a:1 does not answer.", remedy="Wait.")
REFUSED = ConfigurationError("a:1 is no metastore.", remedy="Name another one.")


# -- places --------------------------------------------------------------------------------------------


def poking(sensor: Callable[..., ProbeSensor]) -> Any:
    return sensor(deferrable=False).execute({})  # type: ignore[arg-type]


class Rescheduled:
    """As much of a task instance as a rescheduled sensor reads."""

    def __init__(self) -> None:
        self.first: datetime | None = None

    def get_first_reschedule_date(self, _context: Any) -> datetime | None:
        return self.first


def rescheduled(sensor: Callable[..., ProbeSensor]) -> Any:
    """Each poke is of another process, in which the task begins anew."""
    ti = Rescheduled()
    while True:
        now = datetime.now(UTC)
        try:
            return sensor(deferrable=False, mode="reschedule").execute({"ti": ti})  # type: ignore[arg-type]
        except AirflowException as error:
            if type(error).__name__ != "AirflowRescheduleException":
                raise
            ti.first = ti.first or now


def triggered(sensor: Callable[..., ProbeSensor]) -> Any:
    """The trigger and the task's second half are of other processes, too."""
    try:
        return sensor(deferrable=True).execute({})  # type: ignore[arg-type]
    except TaskDeferred as deferred:
        trigger: Any = deferred.trigger
        event = asyncio.run(first_event(stored(trigger)))
    return sensor(deferrable=True).resume_execution("execute_complete", {"event": event}, {})  # type: ignore[arg-type]


def stored(trigger: ProbeTrigger) -> ProbeTrigger:
    """The trigger after its way through Airflow's database."""
    from airflow.serialization.serialized_objects import BaseSerialization

    path, arguments = trigger.serialize()
    assert path == f"{ProbeTrigger.__module__}.ProbeTrigger"
    text = json.dumps(BaseSerialization.serialize(arguments))
    return ProbeTrigger(**BaseSerialization.deserialize(json.loads(text)))


async def first_event(trigger: ProbeTrigger) -> dict[str, Any]:
    payload = (await anext(trigger.run())).payload
    return dict(json.loads(json.dumps(payload)))


PLACES = {"poke": poking, "reschedule": rescheduled, "trigger": triggered}


def outcome(place: Place, sensor: Callable[..., Any]) -> tuple[str, Any]:
    try:
        return "returned", place(sensor)
    except AirflowException as error:
        return type(error).__name__, str(error)


# -- the same answers ----------------------------------------------------------------------------------


def lag_sensor(**settings: Any) -> ReplicationLagSensor:
    ends = {"policy": POLICY, "source_conn_id": "a", "target_conn_id": "b"}
    return ReplicationLagSensor(task_id="lag", **ends, **settings)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "late has neither partition nor where"),
        ({"partition": "p=1", "where": "p = 1"}, "late has both partition and where"),
    ],
)
def test_a_partition_is_named_or_described(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        RemotePartitionSensor(task_id="late", remote="far", **given)
    assert "Give one of them" in caught.value.remedy


def partition_sensor(**settings: Any) -> RemotePartitionSensor:
    return RemotePartitionSensor(task_id="partition", remote="far", partition="p=1", **settings)


SENSORS: Mapping[str, tuple[type[LagProbe | RemoteProbe], Callable[..., ProbeSensor]]] = {
    "lag": (LagProbe, lag_sensor),
    "partition": (RemoteProbe, partition_sensor),
}
AWAY_ERROR = ("AirflowException", f"MetastoreUnreachableError: {AWAY}")
TIMEOUT = ("AirflowSensorTimeout", "shop: 2 transactions still open: 3, 4. The sensor waited for 0.3 s.")
#: The answers of the probe, of which the last one stays; the sensor's settings; the outcome.
SEQUENCES: Mapping[str, tuple[list[Any], dict[str, Any], tuple[str, Any]]] = {
    "ready": ([READY], {}, ("returned", VALUE)),
    "later": ([FAR, FAR, READY], {}, ("returned", VALUE)),
    "away for a while": ([FAR, AWAY, AWAY, FAR, AWAY, READY], {}, ("returned", VALUE)),
    "away at first": ([AWAY, AWAY, READY], {}, ("returned", VALUE)),
    "away for good": ([FAR, AWAY], {"timeout": "200ms"}, AWAY_ERROR),
    "away from the beginning": ([AWAY], {"timeout": "200ms"}, AWAY_ERROR),
    "away for good, soft": ([FAR, AWAY], {"timeout": "200ms", "soft_fail": True}, AWAY_ERROR),
    "away for good, never": (
        [FAR, AWAY],
        {"timeout": "200ms", "never_fail": True},
        ("AirflowSkipException", None),
    ),
    "refused": ([FAR, REFUSED], {}, ("AirflowFailException", f"ConfigurationError: {REFUSED}")),
    "refused, soft": ([REFUSED], {"soft_fail": True}, ("AirflowSkipException", None)),
    "never": ([FAR], {"timeout": 0.3}, TIMEOUT),
    "never, and no time": (
        [FAR],
        {"timeout": 0},
        ("AirflowSensorTimeout", "shop: 2 transactions still open: 3, 4. The sensor waited for 0 s."),
    ),
    "never, soft": ([FAR], {"timeout": 0.3, "soft_fail": True}, ("AirflowSkipException", None)),
}


def scripted(answers: list[Any]) -> Callable[[Any], ProbeAnswer]:
    left = list(answers)

    def answer(_probe: Any) -> ProbeAnswer:
        following = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(following, HiveFederationError):
            raise following
        return following  # type: ignore[no-any-return]

    return answer


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("kind", SENSORS)
def test_the_outcome_is_the_same_at_every_place(
    kind: str, name: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe, sensor = SENSORS[kind]
    answers, settings, expected = SEQUENCES[name]
    monkeypatch.setattr(probe, "__call__", scripted(answers))
    result, value = outcome(
        PLACES[place], lambda **more: sensor(**{"poke_interval": 0.01, "timeout": 60, **settings, **more})
    )
    assert (result, expected[1] and value) == expected


@pytest.mark.parametrize(
    "event", [{}, {"ready": True, "done": 1}, {**READY.to_json(), "state": {"event": "forgotten"}}]
)
def test_a_wait_that_another_version_ended_begins_anew(
    event: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LagProbe, "__call__", scripted([READY]))
    assert lag_sensor().resume_execution("execute_complete", {"event": event}, {}) == VALUE  # type: ignore[arg-type]
    monkeypatch.setattr(LagProbe, "__call__", scripted([FAR]))
    with pytest.raises(TaskDeferred):
        lag_sensor().resume_execution("execute_complete", {"event": event}, {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "event", [{}, {"ready": True, "done": 1}, {**READY.to_json(), "state": {"event": "forgotten"}}]
)
def test_a_failover_whose_wait_another_version_ended_begins_it_anew(
    event: dict[str, Any], connection: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    marked: list[str] = []
    monkeypatch.setattr(
        "airflow_hive_federation.replication.failover.mark_source",
        lambda *_, **__: marked.append("marked"),
    )
    conn_id = connection(host="127.0.0.1", port=1)
    start = FailoverStartOperator(
        task_id="start", policy=POLICY, source_conn_id=conn_id, target_conn_id=conn_id
    )
    resumed = start.resume_execution("execute_complete", {"event": event}, {})  # type: ignore[arg-type]
    assert (resumed, marked) == ({"database": "shop", "writable": False}, ["marked"])


def test_an_error_of_another_version_may_be_retried() -> None:
    with pytest.raises(AirflowException, match="a:1 does not answer") as caught:
        lag_sensor().execute_complete({}, {"error": "a:1 does not answer"})  # type: ignore[arg-type]
    assert not isinstance(caught.value, AirflowFailException)


def test_another_triggerer_goes_on_until_the_same_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LagProbe, "__call__", scripted([FAR]))
    with pytest.raises(TaskDeferred) as caught:
        lag_sensor(timeout="1h", poke_interval=3600).execute({})  # type: ignore[arg-type]
    trigger: Any = caught.value.trigger

    async def lost() -> None:
        """A triggerer that ends while the trigger sleeps."""
        looks = asyncio.Event()
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(LagProbe, "__call__", lambda _: loop.call_soon_threadsafe(looks.set) and FAR)
        waiting = asyncio.ensure_future(first_event(trigger))
        await looks.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(lost())
    monkeypatch.setattr(LagProbe, "__call__", scripted([READY]))
    again = stored(trigger)
    assert again.deadline_s == trigger.deadline_s
    assert asyncio.run(first_event(again))["value"] == VALUE


@pytest.mark.parametrize("answer", [READY, FAR])
def test_a_triggerer_that_is_late_looks_once(answer: ProbeAnswer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LagProbe, "__call__", scripted([FAR]))
    with pytest.raises(TaskDeferred) as caught:
        lag_sensor().execute({})  # type: ignore[arg-type]
    trigger: Any = caught.value.trigger
    trigger.deadline_s = time.time() - 1
    monkeypatch.setattr(LagProbe, "__call__", scripted([answer]))
    assert asyncio.run(first_event(stored(trigger)))["ready"] is answer.ready


def test_a_triggerer_that_is_gone_is_a_timeout() -> None:
    failed = {"error": "Trigger timeout"}
    with pytest.raises(AirflowSensorTimeout, match="triggerer"):
        lag_sensor().resume_execution("__fail__", dict(failed), {})  # type: ignore[arg-type]
    with pytest.raises(AirflowSkipException):
        lag_sensor(soft_fail=True).resume_execution("__fail__", dict(failed), {})  # type: ignore[arg-type]


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize(
    ("sought", "present", "absent"),
    [
        ({"partition": "p=1"}, "partition p=1 exists", "partition p=1 does not exist"),
        ({"where": "p > 1"}, "a partition with p > 1 exists", "no partition with p > 1 exists"),
        ({}, "the remote has changed", "the remote has not changed"),
    ],
)
def test_a_remote_probe_looks_for_what_it_names(
    sought: dict[str, str], present: str, absent: str, ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Any] = []

    def happened(remotes: Any, kind: Kind, name: Any, **conditions: Any) -> bool:
        looks.append((remotes, kind, name.table, conditions))
        return ready

    monkeypatch.setattr(remote_probes, "happened", happened)
    monkeypatch.setattr(probes, "remotes_of", lambda *_, **__: contextlib.nullcontext("remotes"))
    probe = RemoteProbe(metastore_conn_id="near", database="d", remote="far", remote_kind="table", **sought)
    answer = probe_of(probe.kind, json.loads(json.dumps(probe.to_json())))()
    assert (answer.ready, answer.description) == (ready, f"far: {present if ready else absent}")
    assert looks == [("remotes", Kind.TABLE, "far", {"partition": None, "where": None, **sought})]


# -- the drain, over a socket --------------------------------------------------------------------------


class Draining:
    """A metastore that lists transaction 5 as open, hangs up, or lists none, by a script.

    :param states: ``open``, ``away`` or ``ended``; the last one stays until the transaction is aborted.
    """

    def __init__(self, states: list[str]) -> None:
        self.states = list(states)
        self.aborted: list[int] = []

    def __call__(self, method: str, args: Any) -> Any:
        if method == "abort_txns":
            self.aborted += args.rqst.txn_ids
            return None
        assert method == "get_open_txns_req"
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if state == "away":
            raise HangUp
        open_txns = [5] if state == "open" and not self.aborted else []
        return types.GetOpenTxnsResponse(txn_high_water_mark=9, open_txns=open_txns, abortedBits=b"\0")


START = DrainStart(database="shop", event_id=7, transactions=(3, 5), moment_ms=1)
#: The states of the metastore, the timeout in seconds, and the aborted transactions or the error.
DRAINS: Mapping[str, tuple[list[str], float, Any]] = {
    "ended": (["ended"], 60.0, []),
    "later": (["open", "open", "ended"], 60.0, []),
    "away for a while": (["open", "away", "away", "open", "ended"], 60.0, []),
    "never": (["open"], 0.3, [5]),
}


def by_operator(conn_id: str, timeout_s: float) -> None:
    with as_airflow_error(), HiveMetastoreHook(conn_id).client() as client:
        drain.drain(client, START, timeout_s=timeout_s)


def by_sensor(place: Place) -> Callable[[str, float], None]:
    def ended(conn_id: str, timeout_s: float) -> None:
        result = place(
            lambda **more: OpenTransactionsDrainSensor(
                task_id="drain",
                source_conn_id=conn_id,
                database="shop",
                timeout=timeout_s,
                poke_interval=0.01,
                **more,
            )
        )
        assert DrainStart.from_json(result) == START

    return ended


def by_failover(*, deferrable: bool) -> Callable[[str, float], None]:
    def aborted(pool: MetastorePool, _policy: object, start: DrainStart, **_: object) -> None:
        with pool.client() as client:
            drain.abort_remaining(client, start)

    def ended(conn_id: str, timeout_s: float) -> None:
        def task() -> FailoverStartOperator:
            return FailoverStartOperator(
                task_id="start",
                policy={**POLICY, "open_txn_timeout_s": timeout_s},
                source_conn_id=conn_id,
                target_conn_id=conn_id,
                deferrable=deferrable,
            )

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(failover, "mark_source", lambda *_, **__: START)
            patch.setattr(failover, "end_start", aborted)
            try:
                result = task().execute({})  # type: ignore[arg-type]
            except TaskDeferred as deferred:
                trigger: Any = deferred.trigger
                event = asyncio.run(first_event(stored(trigger)))
                result = task().resume_execution("execute_complete", {"event": event}, {})  # type: ignore[arg-type]
        assert result == {"database": "shop", "writable": False}

    return ended


DRAINING = {
    "operator": by_operator,
    "poke": by_sensor(poking),
    "trigger": by_sensor(triggered),
    "failover": by_failover(deferrable=False),
    "failover's trigger": by_failover(deferrable=True),
}


@pytest.fixture
def metastore() -> Iterator[Callable[[list[str]], tuple[Draining, Peer]]]:
    peers: list[Peer] = []

    def start(states: list[str]) -> tuple[Draining, Peer]:
        draining = Draining(states)
        peers.append(Peer(Thrift(draining)))
        return draining, peers[-1]

    yield start
    for peer in peers:
        peer.close()


@pytest.mark.parametrize("place", DRAINING)
@pytest.mark.parametrize("name", DRAINS)
def test_a_drain_ends_the_same_at_every_place(
    name: str,
    place: str,
    connection: Define,
    metastore: Callable[[list[str]], tuple[Draining, Peer]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drain, "begin_drain", lambda *_: START)
    states, timeout_s, aborted = DRAINS[name]
    draining, peer = metastore(states)
    conn_id = connection(extra={"uris": peer.uri})
    DRAINING[place](conn_id, timeout_s)
    assert draining.aborted == aborted


@pytest.mark.parametrize("place", DRAINING)
def test_a_drain_whose_metastore_stays_away_is_retried(
    place: str,
    connection: Define,
    metastore: Callable[[list[str]], tuple[Draining, Peer]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drain, "begin_drain", lambda *_: START)
    for module in (drain, failover_operators):
        monkeypatch.setattr(module, "DRAIN_POLL", replace(DRAIN_POLL, patience_s=0.2))
    draining, peer = metastore(["open", "away"])
    conn_id = connection(extra={"uris": peer.uri})
    with pytest.raises(AirflowException, match="Error: ") as caught:
        DRAINING[place](conn_id, 0.2)
    assert not isinstance(caught.value, AirflowFailException | AirflowSensorTimeout)
    assert draining.aborted == []

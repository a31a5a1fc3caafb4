"""The lag sensor and its trigger without servers; test_cycles.py asks real metastores."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from airflow_hive_federation.hooks.compat import AirflowFailException, AirflowSensorTimeout, TaskDeferred
from airflow_hive_federation.sensors.replication import ReplicationLagSensor
from airflow_hive_federation.triggers.replication import ReplicationLagTrigger

Define = Callable[..., str]
ENDS: dict[str, Any] = {
    "policy": {"name": "shop", "source_database": "shop", "dump_root": "/dumps"},
    "source_conn_id": "a",
    "target_conn_id": "b",
}


def trigger(answers: list[dict[str, Any] | None], **settings: Any) -> ReplicationLagTrigger:
    """A trigger that is told lags instead of asking for them."""
    fields = {"max_lag_s": 10.0, "max_lag_events": None, "poll_s": 0.01, "deadline_s": time.time() + 60}
    made = ReplicationLagTrigger(**{**ENDS, **fields, **settings})
    made.ask = lambda: answers.pop(0) if len(answers) > 1 else answers[0]  # type: ignore[method-assign]
    return made


def event(made: ReplicationLagTrigger) -> dict[str, Any]:
    async def first() -> dict[str, Any]:
        return dict((await anext(made.run())).payload)

    return asyncio.run(first())


def test_it_goes_through_the_database_and_back() -> None:
    from airflow.serialization.serialized_objects import BaseSerialization

    made = trigger([None], max_lag_events=5)
    path, arguments = made.serialize()
    assert path == f"{ReplicationLagTrigger.__module__}.ReplicationLagTrigger"
    stored = json.loads(json.dumps(BaseSerialization.serialize(arguments)))
    assert ReplicationLagTrigger(**BaseSerialization.deserialize(stored)).serialize() == made.serialize()


def test_until_the_target_is_near() -> None:
    far, near = {"events": 9, "seconds": 11.0}, {"events": 9, "seconds": 10.0}
    assert event(trigger([None, far, near])) == {"state": "reached", "lag": near}


def test_events_may_be_limited_too() -> None:
    many, few = {"events": 9, "seconds": 1.0}, {"events": 3, "seconds": 1.0}
    assert event(trigger([many, few], max_lag_events=3))["lag"] == few


def test_after_the_deadline() -> None:
    far = {"events": 9, "seconds": 11.0}
    assert event(trigger([far], deadline_s=time.time() - 1)) == {"state": "timeout", "lag": far}


def test_a_wrong_connection_ends_the_wait(connection: Define) -> None:
    conn_id = connection(host="h", extra={"nonsense": 1})
    made = ReplicationLagTrigger(
        **{**ENDS, "source_conn_id": conn_id, "target_conn_id": conn_id},
        max_lag_s=1.0,
        max_lag_events=None,
        poll_s=0.01,
        deadline_s=time.time() + 60,
    )
    told = event(made)
    assert (told["state"], told["retryable"]) == ("error", False)
    assert told["message"].startswith("ConfigurationError: ")


def test_the_sensor_defers_only_if_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    answer: dict[str, Any] = {"events": 0, "seconds": 0.0}
    monkeypatch.setattr(ReplicationLagTrigger, "ask", lambda _: answer)
    sensor = ReplicationLagSensor(task_id="lag", max_lag="1m", **ENDS)
    assert sensor.execute({}) == answer  # type: ignore[arg-type]
    answer["seconds"] = 61.0
    with pytest.raises(TaskDeferred) as caught:
        sensor.execute({})  # type: ignore[arg-type]
    assert caught.value.method_name == "execute_complete"
    sensor = ReplicationLagSensor(
        task_id="now", max_lag=60, wait="100ms", poll_interval=0.01, deferrable=False, **ENDS
    )
    with pytest.raises(AirflowSensorTimeout, match="behind by 0 events, 61 s"):
        sensor.execute({})  # type: ignore[arg-type]


def test_after_its_trigger() -> None:
    sensor = ReplicationLagSensor(task_id="lag", **ENDS)
    lag = {"events": 1, "seconds": 2.0}
    assert sensor.execute_complete({}, {"state": "reached", "lag": lag}) == lag  # type: ignore[arg-type]
    with pytest.raises(AirflowSensorTimeout, match="not published yet"):
        sensor.execute_complete({}, {"state": "timeout", "lag": None})  # type: ignore[arg-type]
    with pytest.raises(AirflowFailException, match="gone"):
        sensor.execute_complete({}, {"state": "error", "message": "gone", "retryable": False})  # type: ignore[arg-type]

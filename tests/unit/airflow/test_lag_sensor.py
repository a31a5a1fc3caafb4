"""The lag sensor and its probe without servers; test_scheduled_dag.py uses real metastores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from airflow_hive_federation.hooks.compat import AirflowFailException
from airflow_hive_federation.hooks.probes import LagProbe
from airflow_hive_federation.replication import status
from airflow_hive_federation.replication.status import Lag, Lags
from airflow_hive_federation.sensors.replication import ReplicationLagSensor

Define = Callable[..., str]
POLICY = {"name": "shop", "source_database": "shop", "dump_root": "/dumps"}


@pytest.mark.parametrize(
    ("lag", "most_events", "ready"),
    [
        (None, None, False),
        (Lag(events=9, seconds=11.0), None, False),
        (Lag(events=9, seconds=10.0), None, True),
        (Lag(events=9, seconds=1.0), 3, False),
        (Lag(events=3, seconds=1.0), 3, True),
    ],
)
def test_a_target_is_near_by_age_and_by_number(
    lag: Lag | None,
    most_events: int | None,
    ready: bool,
    connection: Define,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conn_id = connection(host="127.0.0.1", port=1)
    lags = lag and Lags(event_id=1, source_event_id=9, total=lag, tables={})
    monkeypatch.setattr(status, "read_lags", lambda *_: lags)
    monkeypatch.setattr(
        "airflow_hive_federation.hooks.metastore.HiveMetastoreHook.client",
        lambda _: contextlib.nullcontext(None),
    )
    answer = LagProbe(
        policy=POLICY,
        source_conn_id=conn_id,
        target_conn_id=conn_id,
        max_lag_s=10.0,
        max_lag_events=most_events,
    )()
    assert answer.ready is ready
    assert answer.value == (lag and {"events": lag.events, "seconds": lag.seconds})


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_wrong_connection_ends_the_wait(connection: Define, deferrable: bool) -> None:
    conn_id = connection(host="h", extra={"nonsense": 1})
    sensor = ReplicationLagSensor(
        task_id="lag", policy=POLICY, source_conn_id=conn_id, target_conn_id=conn_id, deferrable=deferrable
    )
    with pytest.raises(AirflowFailException, match=r"ConfigurationError: .*nonsense"):
        sensor.execute({})  # type: ignore[arg-type]


def test_durations_may_be_text() -> None:
    ends: dict[str, Any] = {"policy": POLICY, "source_conn_id": "a", "target_conn_id": "b"}
    sensor = ReplicationLagSensor(task_id="lag", max_lag="1m", timeout="2h", **ends)
    assert (sensor.probe().max_lag_s, sensor.timeout_s) == (60.0, 7200.0)

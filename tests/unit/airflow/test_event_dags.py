"""The example DAGs that start by events: of the source, and of a table of the target."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from airflow.sdk import DAG, Asset, AssetWatcher, BaseHook, Connection

from airflow_hive_federation.triggers.replication import SourceEventTrigger

DAGS = Path(__file__).parents[3] / "dags"


def dag(name: str) -> DAG:
    (found,) = (
        value for value in runpy.run_path(str(DAGS / f"{name}.py")).values() if isinstance(value, DAG)
    )
    return found


def test_a_change_of_the_source_starts_the_replication() -> None:
    replicate = dag("replicate_on_change")
    (asset,) = replicate.timetable.asset_condition.objects  # type: ignore[attr-defined]
    assert isinstance(asset, Asset)
    ((watcher),) = asset.watchers
    assert isinstance(watcher, AssetWatcher)
    assert isinstance(watcher.trigger, SourceEventTrigger)
    path, fields = watcher.trigger.serialize()
    assert path == "airflow_hive_federation.triggers.replication.SourceEventTrigger"
    again = SourceEventTrigger(**json.loads(json.dumps(fields)))
    assert again.policy["source_database"] == replicate.params["database"]
    assert again.policy["name"] == f"{again.target_conn_id}.flights"
    assert {task.task_id for task in replicate.tasks} >= {"replicate.decide", "replicate.load"}


def test_a_replicated_table_starts_the_report() -> None:
    report = dag("report_on_replica")
    (asset,) = report.timetable.asset_condition.objects  # type: ignore[attr-defined]
    assert asset.uri == "hive://target.example.com:9083/flights/departures"


@pytest.mark.parametrize("path", sorted(DAGS.glob("*.py")), ids=lambda path: path.stem)
def test_no_connection_is_read_while_a_dag_is_parsed_and_each_parameter_is_described(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ask(conn_id: str, *_: object, **__: object) -> None:
        asked.append(conn_id)
        raise AssertionError(f"Connection {conn_id} is read.")

    for owner, method in ((BaseHook, "get_connection"), (Connection, "get")):
        monkeypatch.setattr(owner, method, ask)
    parsed = dag(path.stem)
    assert asked == []
    for name in parsed.params:
        parameter = parsed.params.get_param(name)
        assert "type" in parameter.schema, name
        assert parameter.schema.get("title"), name
        assert parameter.schema.get("description") or parameter.description, name

"""Runs of DAGs in a whole Airflow: their beginning, states, and the answers of people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow_hive_federation.demo.ui import ENDED, AirflowServer

#: States of a task that asks a person (Airflow 3.3 has one of its own).
WAITING = ("deferred", "awaiting_input")


def instances(server: AirflowServer, run: str) -> dict[str, dict[str, str]]:
    """States of a run's mapped tasks, by task and by policy."""
    states: dict[str, dict[str, str]] = {}
    for instance in server.request(f"{run}/taskInstances?limit=200")["task_instances"]:
        called = instance["rendered_map_index"] or str(instance["map_index"])
        states.setdefault(instance["task_id"].rpartition(".")[2], {})[called] = instance["state"]
    return states


def begin(server: AirflowServer, dag_id: str, conf: dict[str, Any], *, run_id: str) -> str:
    """Trigger a DAG; return the path of its run."""
    server.insist(f"/api/v2/dags/{dag_id}", {"is_paused": False}, "PATCH")
    body = {"dag_run_id": run_id, "logical_date": None, "conf": conf}
    server.insist(f"/api/v2/dags/{dag_id}/dagRuns", body, "POST")
    return f"/api/v2/dags/{dag_id}/dagRuns/{run_id}"


def answer(server: AirflowServer, run: str, option: str) -> None:
    """Answer whenever a run asks for approval, and wait for its end.

    Answered before its scheduler has noticed that the task waits, Airflow 3.3 takes the pause for a failure,
    and asks again. So the answer waits for the scheduler's line about the process that has ended.
    """
    asked = f"{run}/taskInstances/approve"
    answered: set[str] = set()

    def has_ended() -> bool:
        approval = details(server, asked)
        instance = approval.get("id", "")
        if approval.get("state") in WAITING and instance not in answered and is_noticed(server, instance):
            server.insist(f"{asked}/-1/hitlDetails", {"chosen_options": [option]}, "PATCH")
            answered.add(instance)
        return state(server, run) in ENDED

    server.wait(has_ended, "the failover did not end")
    assert answered


def is_noticed(server: AirflowServer, instance: str) -> bool:
    """Return whether the scheduler has noticed the end of a task instance's process."""
    lines = Path(server._log_path).read_text(encoding="utf-8", errors="replace").splitlines()
    return any("TaskInstance Finished" in line and f"ti_id={instance}," in line for line in lines)


def state(server: AirflowServer, path: str) -> str:
    return str(details(server, path).get("state") or "")


def details(server: AirflowServer, path: str) -> dict[str, Any]:
    try:
        return dict(server.request(path))
    except OSError:
        return {}

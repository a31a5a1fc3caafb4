"""The line of a replica, for callbacks whose context has an error and for those that only have a reason."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_hive_federation.hooks.compat import AirflowNotFoundException
from airflow_hive_federation.notifications.replication import ReplicaNotifier

FAILED = "The run r1 of the DAG has failed"
POLICY = {"name": "bills", "source_database": "bills", "dump_root": "file:/dumps"}


def notifier() -> ReplicaNotifier:
    return ReplicaNotifier(policy=POLICY, source_conn_id="s", target_conn_id="t")


@pytest.mark.parametrize(
    ("context", "sent"),
    [
        # A DAG's callback has no exception (airflow.dag_processing.processor).
        (
            {"reason": "task_failure", "run_id": "r1"},
            f"In step. {FAILED} (task_failure).",
        ),
        ({"reason": "timed_out", "run_id": "r1"}, f"In step. {FAILED} (timed_out)."),
        ({"reason": "task_failure", "exception": ValueError("x")}, "In step. x"),
        ({"exception": ValueError("x")}, "In step. x"),
        ({"reason": "success", "run_id": "r1"}, ""),
        ({}, ""),
    ],
)
def test_a_failure_is_sent_though_the_replica_is_in_step(
    monkeypatch: pytest.MonkeyPatch, context: dict[str, Any], sent: str
) -> None:
    monkeypatch.setattr(ReplicaNotifier, "_state", lambda _: ("In step.", (), False))
    assert notifier().describe(context) == sent


def test_a_connection_that_is_not_defined_hides_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def undefined(_: ReplicaNotifier) -> Any:
        raise AirflowNotFoundException("The conn_id `s` isn't defined")

    monkeypatch.setattr(ReplicaNotifier, "_state", undefined)
    line = notifier().describe({"reason": "task_failure", "run_id": "r1"})
    assert line.startswith(
        "The replica of bills cannot be looked at: The conn_id `s` isn't defined. The run r1"
    )

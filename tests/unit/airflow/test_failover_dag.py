"""The example DAG of a failover: nobody switches before a person has agreed."""

from __future__ import annotations

import runpy
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, TriggerRule

DAGS = Path(__file__).parents[3] / "dags"


@pytest.fixture(scope="module")
def dag() -> DAG:
    (dag,) = (value for value in runpy.run_path(str(DAGS / "failover.py")).values() if isinstance(value, DAG))
    return dag


def test_the_way_of_a_failover(dag: DAG) -> None:
    way = ["start", "increment", "load", "verify", "approve", "switch", "roll_back"]
    for before, after in pairwise(way):
        assert after in dag.get_task(before).downstream_task_ids
    assert isinstance(dag.get_task("approve"), ApprovalOperator)
    assert dag.get_task("verify").whole  # type: ignore[union-attr]


def test_a_rejection_skips_the_switch_and_rolls_back(dag: DAG) -> None:
    approve, roll_back = dag.get_task("approve"), dag.get_task("roll_back")
    assert approve.downstream_task_ids == {"switch"}
    assert not approve.ignore_downstream_trigger_rules  # type: ignore[union-attr]
    assert roll_back.trigger_rule == TriggerRule.ALL_SKIPPED
    assert roll_back.upstream_task_ids == {"switch"}


def test_the_policy_is_that_of_the_dag_that_replicates(dag: DAG) -> None:
    """Its name marks the target."""
    (other,) = (
        value
        for value in runpy.run_path(str(DAGS / "replicate_database.py")).values()
        if isinstance(value, DAG)
    )

    def rendered(dag: DAG, task_id: str, **params: str) -> dict[str, str]:
        task: Any = dag.get_task(task_id)
        context = {"params": {**dag.params.dump(), **params}, "var": SimpleNamespace(value={})}
        fields: dict[str, str] = task.render_template(task.policy, context, dag.get_template_env())
        return fields

    for params in ({}, {"target_database": "copy", "include_tables": "a.*", "dump_root": "s3://b/d"}):
        ours, theirs = rendered(dag, "switch", **params), rendered(other, "replicate.increment", **params)
        differing = {name for name in ours if ours[name] != theirs[name]}
        assert differing <= {"open_txn_timeout_s"}
        assert ours.keys() - differing >= {"name", "dump_root", "external_base", "include_tables"}
    assert rendered(dag, "switch", policy="flights")["name"] == "flights"

"""Operators, sensor and trigger without servers; test_operators.py runs them for real."""

from __future__ import annotations

import json
import pickle
import runpy
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_hive_federation import errors
from airflow_hive_federation.errors import ConfigurationError, CycleRunningError, HiveFederationError
from airflow_hive_federation.hooks.compat import AirflowException, AirflowFailException, AirflowSkipException
from airflow_hive_federation.hooks.error_translation import as_airflow_error, origin_of
from airflow_hive_federation.hooks.policy_fields import rendered_policy
from airflow_hive_federation.hooks.progress import failures_counted
from airflow_hive_federation.hooks.published import described
from airflow_hive_federation.hooks.spark import SparkPipelineHook
from airflow_hive_federation.operators.failover import (
    FailoverOperator,
    FailoverRollbackOperator,
    FailoverStartOperator,
)
from airflow_hive_federation.operators.replication import (
    BootstrapDumpOperator,
    IncrementalDumpOperator,
    RepairReplicaOperator,
    ReplicationLoadOperator,
    VerifyReplicaOperator,
    dump_uri,
    latest_dump,
    replicate_database,
)
from airflow_hive_federation.replication import cycle
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.verify import unverified, verify
from airflow_hive_federation.replication.verify.report import VerificationReport
from airflow_hive_federation.sensors.replication import ReplicationLagSensor
from airflow_hive_federation.sensors.transactions import OpenTransactionsDrainSensor

DAG_FILE = Path(__file__).parents[3] / "dags" / "replicate_database.py"
POLICY = {"name": "shop", "source_database": "shop", "dump_root": "/dumps"}
ENDS: dict[str, Any] = {"policy": POLICY, "source_conn_id": "a", "target_conn_id": "b"}

Define = Callable[..., str]


# -- the DAG -------------------------------------------------------------------------------------------


@pytest.fixture
def dag() -> DAG:
    dag: DAG = runpy.run_path(str(DAG_FILE))["dag"]
    return dag


def test_the_task_group(dag: DAG) -> None:
    group = dag.task_group.get_task_group_dict()["replicate"]
    assert group is not None
    tasks = ("decide", "drain", "dump", "increment", "load", "verify")
    assert set(dag.task_ids) == {f"replicate.{name}" for name in tasks}
    for steps in (("decide", "drain", "dump", "load", "verify"), ("decide", "increment", "load", "verify")):
        for before, after in pairwise(steps):
            assert f"replicate.{after}" in dag.get_task(f"replicate.{before}").downstream_task_ids
    decide: Any = dag.get_task("replicate.decide")
    assert decide.downstream_task_ids == {decide.bootstrap_task_id, decide.increment_task_id}
    # One of its two predecessors is skipped.
    assert dag.get_task("replicate.load").trigger_rule == "none_failed"


def rendered(dag: DAG, task_id: str, **params: Any) -> Any:
    """The task with its templates rendered as Airflow does; outputs of other tasks stay away."""
    task: Any = dag.get_task(task_id)
    environment = dag.get_template_env()
    variables = SimpleNamespace(value={"hive_federation_external_base": "s3://lake/replica"})
    context = {"params": {**dag.params.dump(), **params}, "var": variables}
    fields = [name for name in task.template_fields if name not in {"start", "dump"}]
    return {name: task.render_template(getattr(task, name), context, environment) for name in fields}


def test_the_form_left_as_it_is(dag: DAG) -> None:
    fields = rendered(dag, "replicate.load")
    assert rendered_policy(fields["policy"], {}) == ReplicationPolicy(
        name="hive_target.flights",
        source_database="flights",
        dump_root="/var/lib/hive-federation",
        external_base="s3://lake/replica",
    )
    assert (fields["source_conn_id"], fields["target_conn_id"]) == ("hive_source", "hive_target")
    assert fields["spark_conn_id"] == "spark_default"


def test_the_form_filled(dag: DAG) -> None:
    fields = rendered(
        dag,
        "replicate.verify",
        target_database="copy",
        target_conn_id="far",
        dump_root="s3://bucket/dumps",
        external_base="s3://bucket/external",
        open_txn_timeout="30s",
        bandwidth_bytes_per_s=1000,
        into_existing=True,
    )
    policy = rendered_policy(fields["policy"], {})
    assert (policy.name, policy.target_database) == ("far.copy", "copy")
    assert (policy.dump_root, policy.external_base) == ("s3://bucket/dumps", "s3://bucket/external")
    assert (policy.open_txn_timeout_s, policy.bandwidth_bytes_per_s, policy.into_existing) == (30, 1000, True)


def test_every_parameter_of_the_form_is_used_and_has_a_title(dag: DAG) -> None:
    for name in dag.params:
        assert f"params.{name}" in DAG_FILE.read_text("utf-8")
        assert dag.params.get_param(name).schema["title"]


def test_the_dag_survives_airflows_serialization(dag: DAG) -> None:
    from airflow.serialization import serialized_objects

    # Airflow 3.1 calls it otherwise.
    names = ("DagSerialization", "SerializedDAG")
    kind: Any = next(getattr(serialized_objects, name) for name in names if hasattr(serialized_objects, name))
    again = kind.from_dict(json.loads(json.dumps(kind.to_dict(dag))))
    task = again.get_task("replicate.dump")
    assert task.policy["source_database"] == "{{ params.database }}"
    assert again.get_task("replicate.drain").downstream_task_ids == {"replicate.dump"}


def test_a_policy_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = ReplicationPolicy(**POLICY, open_txn_timeout_s=60)
    with DAG("mine", schedule=None) as mine:
        replicate_database(
            policy, source_conn_id="a", target_conn_id="b", spark_conf={"spark.x": "1"}, deferrable=False
        )
    drain: Any = mine.get_task("replicate_shop.drain")
    assert (drain.database, drain.timeout, drain.deferrable) == ("shop", 60.0, False)
    load: Any = mine.get_task("replicate_shop.load")
    assert load.spark_conf == {"spark.x": "1"}
    assert "storage_options" not in load.policy


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (POLICY | {"bandwith": 1}, "no fields named .'bandwith'"),
        (POLICY | {"name": "{{ params.database }}"}, "Give group_id"),
    ],
)
def test_refused_while_the_dag_is_parsed(policy: dict[str, Any], message: str) -> None:
    with DAG("mine", schedule=None), pytest.raises(ConfigurationError, match=message):
        replicate_database(policy, source_conn_id="a", target_conn_id="b")


# -- operators -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "task",
    [
        OpenTransactionsDrainSensor(task_id="drain", source_conn_id="a", database="shop"),
        BootstrapDumpOperator(task_id="dump", policy=POLICY, source_conn_id="a"),
        IncrementalDumpOperator(task_id="increment", **ENDS),
        ReplicationLoadOperator(task_id="load", dump="/dumps/1", **ENDS),
        VerifyReplicaOperator(task_id="verify", dump="/dumps/1", **ENDS),
        RepairReplicaOperator(task_id="repair", report={"differing": ["t"]}, **ENDS),
        FailoverStartOperator(task_id="start", **ENDS),
        FailoverOperator(task_id="switch", **ENDS),
        FailoverRollbackOperator(task_id="roll_back", **ENDS),
        ReplicationLagSensor(task_id="lag", **ENDS),
    ],
    ids=lambda task: task.task_id,
)
def test_template_fields_are_arguments(task: Any) -> None:
    assert all(hasattr(task, name) for name in task.template_fields)
    assert set(task.template_fields_renderers) <= set(task.template_fields)
    assert "source_conn_id" in task.template_fields


@pytest.mark.parametrize("dump", ["file:/dumps/7", {"dump": "file:/dumps/7", "event_id": 7}])
def test_a_dump_by_its_uri_or_by_its_task(dump: Any) -> None:
    assert dump_uri(dump) == "file:/dumps/7"


@pytest.mark.parametrize("dump", [None, "", {}, {"dump": None}, 7])
def test_no_dump(dump: Any) -> None:
    with pytest.raises(ConfigurationError, match="names no dump"):
        dump_uri(dump)


@pytest.mark.parametrize(
    ("dumps", "latest"),
    [
        ([None, None], None),
        ([], None),
        ([None, {"event_id": 3, "dump": "b"}], "b"),
        ([{"event_id": 2, "dump": "a"}, None], "a"),
        # A task that was cleared and is skipped now left what it had returned.
        ([{"event_id": 2, "dump": "a"}, {"event_id": 3, "dump": "b"}], "b"),
        ([{"event_id": 4, "dump": "a"}, {"event_id": 3, "dump": "b"}], "a"),
        ([{"event_id": 3, "dump": "a"}, {"event_id": 3, "dump": "b"}], "b"),
    ],
)
def test_the_latest_of_two_dumps(dumps: list[Any], latest: str | None) -> None:
    dump = latest_dump(dumps)
    assert (dump and dump["dump"]) == latest


def test_a_wrong_connection_fails_the_task_for_good(connection: Define) -> None:
    conn_id = connection(host="h", extra={"nonsense": 1})
    tasks: list[Any] = [
        OpenTransactionsDrainSensor(task_id="drain", source_conn_id=conn_id, database="shop"),
        BootstrapDumpOperator(task_id="dump", policy=POLICY, source_conn_id=conn_id),
        IncrementalDumpOperator(task_id="increment", **ENDS | {"source_conn_id": conn_id}),
        ReplicationLagSensor(task_id="lag", **ENDS | {"source_conn_id": conn_id}),
        ReplicationLoadOperator(task_id="load", dump="d", **ENDS | {"source_conn_id": conn_id}),
        VerifyReplicaOperator(task_id="verify", dump="d", **ENDS | {"source_conn_id": conn_id}),
        RepairReplicaOperator(task_id="repair", **ENDS | {"source_conn_id": conn_id}),
        FailoverStartOperator(task_id="start", **ENDS | {"source_conn_id": conn_id}),
        FailoverOperator(task_id="switch", **ENDS | {"source_conn_id": conn_id}),
        FailoverRollbackOperator(task_id="roll_back", **ENDS | {"source_conn_id": conn_id}),
    ]
    for task in tasks:
        with pytest.raises(AirflowFailException, match=r"ConfigurationError: .*nonsense"):
            task.execute({})


def test_a_metastore_that_is_down_is_asked_again(connection: Define) -> None:
    conn_id = connection(host="127.0.0.1", port=1)
    task = BootstrapDumpOperator(task_id="dump", policy=POLICY, source_conn_id=conn_id)
    with pytest.raises(AirflowException, match=r"MetastoreUnreachableError: .*127\.0\.0\.1:1") as caught:
        task.execute({})  # type: ignore[arg-type]
    assert not isinstance(caught.value, AirflowFailException)


def error_classes(root: type[HiveFederationError] = HiveFederationError) -> list[type[HiveFederationError]]:
    return [root, *(error_class for child in root.__subclasses__() for error_class in error_classes(child))]


@pytest.mark.parametrize("kind", error_classes())
def test_retryable_errors_are_retried_and_no_others(kind: type[HiveFederationError]) -> None:
    with pytest.raises(AirflowException) as caught, as_airflow_error():
        raise kind("Table a.b is gone.", remedy="Look.")
    assert isinstance(caught.value, AirflowFailException) is not kind.retryable
    assert str(caught.value) == f"{kind.__name__}: Table a.b is gone. Remedy: Look."
    # The log of a task has each error of a chain: here, one.
    assert isinstance(origin_of(caught.value), kind)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_publications_get_the_class_and_the_remedy_of_the_error() -> None:
    with pytest.raises(AirflowException) as caught, as_airflow_error():
        raise errors.MetastoreUnreachableError("Nobody answers.", remedy="Start it.")
    assert described(caught.value) == ("MetastoreUnreachableError: Nobody answers.", "Start it.")


def test_foreign_errors_stay_what_they_are() -> None:
    with pytest.raises(ZeroDivisionError), as_airflow_error():
        _ = 1 / 0


# -- the sensor ----------------------------------------------------------------------------------------


def test_a_drain_is_not_rescheduled() -> None:
    with pytest.raises(ValueError, match="mode must be one of"):
        OpenTransactionsDrainSensor(task_id="drain", source_conn_id="a", database="shop", mode="reschedule")


@pytest.mark.parametrize(
    ("timeout", "seconds"), [(None, 3600), ("None", 3600), ("", 3600), ("5m", 300), (2.5, 2.5)]
)
def test_the_timeout_of_a_drain_may_be_a_template(timeout: Any, seconds: float) -> None:
    sensor = OpenTransactionsDrainSensor(
        task_id="drain", source_conn_id="a", database="shop", timeout=timeout
    )
    assert "timeout" in sensor.template_fields
    assert sensor.timeout_s == seconds


def test_a_timeout_that_is_none(connection: Define) -> None:
    conn_id = connection(host="127.0.0.1", port=1)
    sensor = OpenTransactionsDrainSensor(
        task_id="drain", source_conn_id=conn_id, database="shop", timeout="soon"
    )
    with pytest.raises(AirflowFailException, match="'soon' is not a duration"):
        sensor.execute({})  # type: ignore[arg-type]


def test_errors_survive_the_way_between_processes() -> None:
    error = errors.TargetChangedError("Table a.b was changed.", remedy="Undo.", differences=["x"])
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.differences) == (type(error), str(error), ["x"])


def test_load_looks_for_its_earlier_copy_job_before_it_takes_the_lock(
    connection: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence that comes with the lock would end the job."""
    steps: list[str] = []

    def load(*_: Any, **__: Any) -> None:
        steps.append("load")
        raise CycleRunningError("busy")

    monkeypatch.setattr(SparkPipelineHook, "wait_for_copy", lambda _, dump, source: steps.append(dump))
    monkeypatch.setattr(cycle, "load_dump", load)
    conn_id = connection(host="127.0.0.1", port=1)
    ends = {"source_conn_id": conn_id, "target_conn_id": conn_id}
    task = ReplicationLoadOperator(task_id="t", policy=POLICY, dump="file:/d/p/1", **ends)
    with pytest.raises(AirflowException, match="busy"):
        task.execute({})  # type: ignore[arg-type]
    assert steps == ["file:/d/p/1", "load"]


# -- failures as a metric ------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "database"), [({}, "shop"), ({"target_database": "copy"}, "copy")])
def test_a_failed_task_is_counted_for_its_target(
    target: dict[str, str], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[tuple[str, int]] = []
    receiver = SimpleNamespace(incr=lambda *counter: counted.append(counter))
    monkeypatch.setattr("airflow_hive_federation.hooks.compat.airflow_metrics", lambda: receiver)
    for end in "AB":
        uri = json.dumps({"conn_type": "hive_federation", "host": "127.0.0.1", "port": 1})
        monkeypatch.setenv(f"AIRFLOW_CONN_{end}", uri)
    task = IncrementalDumpOperator(task_id="increment", **{**ENDS, "policy": {**POLICY, **target}})
    with pytest.raises(AirflowException, match="MetastoreUnreachableError"):
        task.execute({})  # type: ignore[arg-type]
    assert counted == [(f"hive_federation.{database}.failures", 1)]


def test_a_skipped_task_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_hive_federation.hooks.compat.airflow_metrics", lambda: None)
    with pytest.raises(AirflowSkipException), failures_counted("shop"):
        raise AirflowSkipException("Nothing is loaded.")


@pytest.mark.parametrize("is_due", [True, False])
def test_a_verification_is_skipped_until_it_is_due(
    is_due: bool, connection: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn_id = connection(host="127.0.0.1", port=1)
    asked: list[int] = []

    def due(*_: object, every: int) -> bool:
        asked.append(every)
        return is_due

    def compared(*_: object, **__: object) -> VerificationReport:
        return VerificationReport(database="shop", event_id=7, tables=[])

    monkeypatch.setattr(unverified, "is_due", due)
    monkeypatch.setattr(unverified, "tables_to_compare", lambda *_, **__: set())
    monkeypatch.setattr(verify, "verify_replica", compared)

    def execute(every: int, *, idle: bool = False) -> None:
        dump = {"dump": "file:/dumps/1", "event_id": 7, "idle": idle}
        ends: dict[str, Any] = {**ENDS, "source_conn_id": conn_id, "target_conn_id": conn_id}
        VerifyReplicaOperator(task_id="verify", dump=dump, every=every, **ends).execute({})  # type: ignore[arg-type]

    with nullcontext() if is_due else pytest.raises(AirflowSkipException, match="One cycle of 3"):
        execute(3)
    # An idle cycle brings what no verification has found equal.
    execute(3, idle=True)
    execute(1)
    assert asked == [3]
    for impossible in (0, 11):
        with pytest.raises(ConfigurationError, match=f"One verification in {impossible} cycles"):
            execute(impossible)

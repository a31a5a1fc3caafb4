"""Operators and sensors refuse arguments of the wrong type, which a template or a slip has made."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator, task

from airflow_hive_federation.clusters.assignment import chosen_databases
from airflow_hive_federation.clusters.copies.objects import chosen_partitions
from airflow_hive_federation.compaction.requests import partitions_of
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.compat import AirflowFailException
from airflow_hive_federation.ingest.connection import HiveStreamingConnection
from airflow_hive_federation.ingest.inputs import find_inputs
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.operators.cluster_status import ClusterStatusOperator
from airflow_hive_federation.operators.clusters import (
    AssignClusterOperator,
    CopyToClusterOperator,
    KeepCopiesOperator,
)
from airflow_hive_federation.operators.compaction import CompactTableOperator
from airflow_hive_federation.operators.ingest import StreamingIngestOperator
from airflow_hive_federation.operators.remote import (
    CreateRemoteTableOperator,
    DescribeRemoteOperator,
    DropRemoteOperator,
    RefreshRemoteOperator,
)
from airflow_hive_federation.operators.replication import (
    RepairReplicaOperator,
    ReplicationLoadOperator,
    VerifyReplicaOperator,
    replicate_database,
)
from airflow_hive_federation.operators.replication_group import GroupVerifyOperator, replicate_group
from airflow_hive_federation.operators.replications import ReplicationPoliciesOperator, replicate_databases
from airflow_hive_federation.provider import get_provider_info
from airflow_hive_federation.sensors.remote import RemoteTableChangedSensor
from airflow_hive_federation.sensors.replication import ReplicationLagSensor

Define = Callable[..., str]

POLICY = {"name": "shop", "source_database": "shop", "dump_root": "/dumps"}
GROUP = {"name": "g", "dump_root": "/dumps", "policies": [{"name": "shop", "source_database": "shop"}]}
ENDS: dict[str, Any] = {"source_conn_id": "near", "target_conn_id": "far"}
#: Values of the arguments that an operator may need.
NEEDED: dict[str, Any] = {
    **ENDS,
    "policy": POLICY,
    "group": GROUP,
    "dump": "file:/dumps/shop/1",
    "table": "sales.orders",
    "cluster": "C2",
    "rule": "all of sales.orders in C2",
    "remote": "far",
    "sql": "SHOW REMOTES",
    "database": "sales",
    "partition": "day=1",
    "bootstrap_task_id": "drain",
    "increment_task_id": "increment",
    "policies": [],
}
OWN = "airflow_hive_federation."


def kinds() -> Iterator[type[BaseOperator]]:
    info = get_provider_info()
    for group in (*info["operators"], *info["sensors"]):
        for name in group["python-modules"]:
            for kind in vars(importlib.import_module(name)).values():
                if (
                    inspect.isclass(kind)
                    and issubclass(kind, BaseOperator)
                    and kind.__module__ == name
                    and not kind.__name__.startswith("_")
                ):
                    yield kind


def own_arguments(kind: type[BaseOperator]) -> dict[str, inspect.Parameter]:
    """The arguments of an operator and of its bases, without those of Airflow's."""
    return {
        name: argument
        for base in reversed(kind.__mro__)
        if base.__module__.startswith(OWN) and "__init__" in vars(base)
        for name, argument in inspect.signature(base).parameters.items()
        if argument.kind is inspect.Parameter.KEYWORD_ONLY
    }


FLAGS = [
    (kind, name)
    for kind in kinds()
    for name, argument in own_arguments(kind).items()
    if str(argument.annotation) in {"bool", "bool | None"}
    # This one is never deferred.
    and (kind.__name__, name) != ("GroupBootstrapOperator", "deferrable")
]


def needed(kind: type[BaseOperator]) -> dict[str, Any]:
    given = {
        name: NEEDED[name]
        for name, argument in own_arguments(kind).items()
        if argument.default is inspect.Parameter.empty
    }
    if kind is StreamingIngestOperator:
        given["inputs"] = ["/files"]
    return {"partition": "day=1", **given} if kind.__name__ == "RemotePartitionSensor" else given


def test_the_flags_are_found() -> None:
    found = {f"{kind.__name__}.{name}" for kind, name in FLAGS}
    assert found >= {
        "FailoverOperator.source_lost",
        "FailoverRollbackOperator.target_lost",
        "CopyToClusterOperator.drop",
        "VerifyReplicaOperator.deferrable",
        "ReplicationLagSensor.deferrable",
    }
    assert len(FLAGS) > 30


@pytest.mark.parametrize(("kind", "name"), FLAGS, ids=lambda value: getattr(value, "__name__", value))
def test_a_text_is_no_boolean(kind: Any, name: str) -> None:
    kind(task_id="t", **needed(kind), **{name: True})
    for text in ("False", "{{ params.it }}"):
        with pytest.raises(ConfigurationError, match=rf"The argument {name} is of type str\."):
            kind(task_id="t", **needed(kind), **{name: text})


LISTS: list[tuple[Any, str, dict[str, Any]]] = [
    (StreamingIngestOperator, "inputs", {"table": "a.b"}),
    (StreamingIngestOperator, "partition", {"table": "a.b", "inputs": ["/files"]}),
    (StreamingIngestOperator, "order_by", {"table": "a.b", "sql": "t", "sql_conn_id": "hive"}),
    (CopyToClusterOperator, "partitions", {"table": "a.b", "cluster": "C2", "drop": True}),
    (CompactTableOperator, "partitions", {"table": "a.b"}),
    (AssignClusterOperator, "databases", {"undo": True}),
    (ClusterStatusOperator, "databases", {}),
]


@pytest.mark.parametrize(
    ("kind", "name", "more"), LISTS, ids=lambda value: getattr(value, "__name__", str(value)[:20])
)
def test_a_text_is_no_list(
    kind: Any, name: str, more: dict[str, Any], connection: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing listens at the metastore: the refusal comes before a look at it."""
    monkeypatch.setattr(
        "airflow_hive_federation.operators.ingest.BaseHook.get_hook", lambda _: sqlite_hook(), raising=True
    )
    operator = kind(
        task_id="t", metastore_conn_id=connection(host="127.0.0.1", port=1), **{**more, name: "day=21"}
    )
    with pytest.raises(
        AirflowFailException, match=rf"^ConfigurationError: The argument {name} is of type str"
    ):
        operator.execute({})


def test_the_library_refuses_texts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """``name in "day=21"`` is true for ``day=2``; the characters of a path name directories."""
    table = types.Table(dbName="sales", tableName="orders", partitionKeys=[types.FieldSchema(name="day")])
    found = [types.Partition(values=[day]) for day in ("1", "2", "21")]
    client: Any = SimpleNamespace(find_partitions=lambda *_: found)
    assert list(chosen_partitions(client, table, ["day=21"], "day > '0'")) == ["day=21"]
    monkeypatch.setattr(
        "airflow_hive_federation.ingest.inputs._matching_files", lambda *_: pytest.fail("it lists")
    )
    calls: list[Callable[[], Any]] = [
        lambda: chosen_partitions(client, table, "day=21", "day > '0'"),
        lambda: list(chosen_databases(client, "sales")),
        lambda: partitions_of(client, "sales.orders", "day=21"),
        lambda: find_inputs("/files"),
        lambda: HiveStreamingConnection.new_builder().with_static_partition_values("21"),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match="is of type str"):
            call()
    with pytest.raises(ConfigurationError, match="inputs, in its list, is of type int"):
        find_inputs([5])  # type: ignore[list-item]


def sqlite_hook() -> Any:
    from airflow.providers.sqlite.hooks.sqlite import SqliteHook

    return SqliteHook()


@task
def made() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize("given", ["template", "result"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (VerifyReplicaOperator, "policy"),
        (VerifyReplicaOperator, "spark_conf"),
        (ReplicationLagSensor, "policy"),
        (GroupVerifyOperator, "group"),
        (GroupVerifyOperator, "spark_conf"),
        (ReplicationPoliciesOperator, "defaults"),
    ],
)
def test_a_template_is_no_mapping(kind: Any, name: str, given: str) -> None:
    with DAG("d", schedule=None):
        value = "{{ var.json.it }}" if given == "template" else made()
        with pytest.raises(
            ConfigurationError, match=rf"The argument {name} is of type .* Remedy: Give a mapping"
        ):
            kind(task_id="t", **{**needed(kind), name: value})


@pytest.mark.parametrize("name", [5, None, "", "sales eu", "{{ params.name }}", "{% if a %}a{% endif %}"])
def test_a_name_that_cannot_be_an_id_needs_one(name: Any) -> None:
    with DAG("d", schedule=None):
        with pytest.raises(ConfigurationError, match=r"cannot name a task group\. Remedy: Give group_id"):
            replicate_database({**POLICY, "name": name}, **ENDS)
        assert replicate_database({**POLICY, "name": name}, **ENDS, group_id="shop").group_id == "shop"
        with pytest.raises(ConfigurationError, match=r"cannot name a task group|needs a name"):
            replicate_group({**GROUP, "name": name}, **ENDS)


def test_a_name_may_have_dots() -> None:
    with DAG("d", schedule=None):
        assert replicate_database({**POLICY, "name": "a.b"}, **ENDS).group_id == "replicate_a_b"


@pytest.mark.parametrize(
    ("name", "value"), [("verify_every", "3"), ("verify_every", True), ("verify_whole", "False")]
)
def test_groups_name_their_own_arguments(name: str, value: Any) -> None:
    policies = ReplicationPoliciesOperator(task_id="policies", policies=[POLICY])
    with DAG("d", schedule=None):
        for build, given in ((replicate_database, POLICY), (replicate_databases, policies.output)):
            with pytest.raises(ConfigurationError, match=rf"The argument {name} is of type"):
                build(given, **ENDS, **{name: value})  # type: ignore[operator]
    with DAG("e", schedule=None), pytest.raises(ConfigurationError, match="verify_whole is of type str"):
        replicate_group(GROUP, **ENDS, verify_whole="False")  # type: ignore[arg-type]


def test_several_databases_are_verified_every_so_many_cycles() -> None:
    with DAG("d", schedule=None) as dag:
        policies = ReplicationPoliciesOperator(task_id="policies", policies=[POLICY])
        replicate_databases(policies.output, **ENDS, verify_every=4)
    verify: Any = dag.get_task("replicate.verify")
    assert verify.every == 4


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (DropRemoteOperator, {"kind": "databse"}, "kind is 'databse'. Remedy: Give 'table' or 'database'."),
        (RefreshRemoteOperator, {"kind": "Table"}, "kind is 'Table'."),
        (RefreshRemoteOperator, {"on_dropped": "delete"}, "on_dropped is 'delete'. Remedy: Give 'drop' or"),
        (DescribeRemoteOperator, {"kind": "view"}, "kind is 'view'."),
        (CreateRemoteTableOperator, {"properties": "{'a': 'hidden'}"}, "properties is of type str."),
        (RemoteTableChangedSensor, {"kind": "view", "deferrable": False}, "kind is 'view'."),
        (KeepCopiesOperator, {"compare_hours": "x"}, "compare_hours is 'x'."),
        (KeepCopiesOperator, {"compare_hours": "inf"}, "compare_hours is 'inf'."),
        (KeepCopiesOperator, {"compare_hours": "nan"}, "compare_hours is 'nan'."),
        (KeepCopiesOperator, {"compare_hours": None}, "compare_hours is of type NoneType."),
    ],
)
def test_impossible_values_fail_the_task_for_good(
    kind: Any, arguments: dict[str, Any], message: str, connection: Define
) -> None:
    """Airflow retries other errors, and no metric counts them."""
    given = {**needed(kind), "metastore_conn_id": connection(host="127.0.0.1", port=1), **arguments}
    with pytest.raises(AirflowFailException) as caught:
        kind(task_id="t", **given).execute({})
    assert str(caught.value).startswith(f"ConfigurationError: The argument {message}")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (RepairReplicaOperator, {"report": "{'differing': []}"}, "The argument report is of type str."),
        (RepairReplicaOperator, {"report": {"x": 1}}, "The argument report has no key 'differing'."),
        (
            RepairReplicaOperator,
            {"report": {"differing": "orders"}},
            "The argument report['differing'] is of",
        ),
        (
            VerifyReplicaOperator,
            {"dump": "{'dump': 'file:/dumps/1'}"},
            "\"{'dump': 'file:/dumps/1'}\" names no",
        ),
        (VerifyReplicaOperator, {"dump": ["['file:/dumps/1']"]}, "\"['file:/dumps/1']\" names no dump."),
        (ReplicationLoadOperator, {"dump": {"idle": True}}, "The argument dump, in its event_id, is of type"),
    ],
)
def test_the_text_of_a_result_is_no_result(
    kind: Any, arguments: dict[str, Any], message: str, connection: Define
) -> None:
    ends = dict.fromkeys(ENDS, connection(host="127.0.0.1", port=1))
    with pytest.raises(AirflowFailException) as caught:
        kind(task_id="t", **{**needed(kind), **ends, **arguments}).execute({})
    assert str(caught.value).startswith(f"ConfigurationError: {message}")


def test_a_lag_in_events_is_a_number() -> None:
    with pytest.raises(ConfigurationError, match="max_lag_events is of type str"):
        ReplicationLagSensor(task_id="t", policy=POLICY, **ENDS, max_lag_events="{{ 3 }}")  # type: ignore[arg-type]


def test_a_repair_that_another_version_began_begins_anew() -> None:
    operator = RepairReplicaOperator(task_id="t", policy=POLICY, **ENDS)
    operator._progress = {"rounds": 1, "of another version": True}
    assert operator._begun() is None


def test_files_of_a_list_are_ingested(tmp_path: Path) -> None:
    from airflow_hive_federation.ingest.files import IngestRequest

    operator = StreamingIngestOperator(task_id="t", table="a.b", inputs=(str(tmp_path), "s3://b/*"))
    assert operator._fields(IngestRequest)["inputs"] == [str(tmp_path), "s3://b/*"]

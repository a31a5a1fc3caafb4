"""Policies of several databases, the mapped task group, and the tasks' asset events about tables."""

from __future__ import annotations

import json
import runpy
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from openlineage.client.serde import Serde

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.compat import AirflowFailException, AirflowSkipException
from airflow_hive_federation.hooks.policy_fields import NAMES
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.operators.lineage import (
    REPLICATED,
    SKIPPED_TABLES,
    Lineage,
    TableDataset,
    announce,
    namespace,
)
from airflow_hive_federation.operators.replication import ReplicationBranchOperator, ReplicationLoadOperator
from airflow_hive_federation.operators.replications import (
    ReplicationPoliciesOperator,
    complete_policy,
    read_policies,
)
from airflow_hive_federation.replication.policy import ReplicationPolicy

DAG_FILE = Path(__file__).parents[3] / "dags" / "replicate_databases.py"
POLICY = {"name": "shop", "source_database": "shop", "dump_root": "/dumps"}
DEFAULTS = {"dump_root": "/dumps"}


@pytest.fixture
def dag() -> DAG:
    dag: DAG = runpy.run_path(str(DAG_FILE))["dag"]
    return dag


def test_the_group_is_mapped_over_the_policies(dag: DAG) -> None:
    load: Any = dag.get_task("replicate.load")
    assert load.get_closest_mapped_task_group() is not None
    assert set(load.policy) == NAMES
    assert dag.get_task("policies").downstream_task_ids >= {"replicate.decide", "replicate.load"}
    assert load.outlets == [REPLICATED]


def test_the_way_that_was_not_chosen_is_skipped(dag: DAG) -> None:
    increment: Any = dag.get_task("replicate.increment")
    assert not getattr(dag.get_task("replicate.dump"), "_pre_execute_hook", None)

    def begin(chosen: str | None) -> None:
        asked: list[dict[str, Any]] = []
        ti = SimpleNamespace(
            task_id=increment.task_id, map_index=3, xcom_pull=lambda **asks: asked.append(asks) or chosen
        )
        increment._pre_execute_hook({"ti": ti})
        assert asked == [{"task_ids": "replicate.decide", "map_indexes": 3}]

    begin(increment.task_id)
    with pytest.raises(AirflowSkipException, match=r"replicate\.drain"):
        begin("replicate.drain")


def test_policies_by_list_text_or_file(tmp_path: Path) -> None:
    policies = ["a", {"source_database": "b"}]
    assert read_policies(policies) == policies
    assert read_policies(json.dumps(policies)) == policies
    (tmp_path / "some.json").write_text(json.dumps({"policies": policies}), encoding="utf-8")
    assert read_policies(str(tmp_path / "some.json")) == policies
    text = '[[policies]]\nsource_database = "b"\n'
    (tmp_path / "some.toml").write_text(text, encoding="utf-8")
    assert read_policies(str(tmp_path / "some.toml")) == policies[1:]


@pytest.mark.parametrize("given", ["", "{", '"a"', "/nowhere.toml", None, 3, {"a": 1}])
def test_what_is_no_list_of_policies(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="policies"):
        read_policies(given)


def test_a_policy_is_called_after_its_database() -> None:
    assert set(complete_policy("a", DEFAULTS)) == NAMES
    assert complete_policy("a", DEFAULTS)["name"] == "a"
    named = complete_policy({"source_database": "a", "target_database": "b", "dump_root": "/else"}, DEFAULTS)
    assert (named["name"], named["dump_root"]) == ("b", "/else")
    with pytest.raises(ConfigurationError, match="colour"):
        complete_policy({"source_database": "a", "colour": "red"}, DEFAULTS)
    with pytest.raises(ConfigurationError, match="dump_root"):
        complete_policy("a", {})


def test_the_fields_of_a_policy_have_their_types() -> None:
    """A database may have digits for its name, which TOML and JSON read as a number."""
    given = {
        "source_database": 2024,
        "into_existing": "yes",
        "parallel_copies": "3",
        "table_names": "{'a': 'b'}",
    }
    fields = complete_policy({**given, "allowed_source_roots": "s3://a,s3://b"}, DEFAULTS)
    assert (fields["name"], fields["source_database"]) == ("2024", "2024")
    assert (fields["into_existing"], fields["parallel_copies"]) == (True, 3)
    assert fields["table_names"] == {"a": "b"}
    assert fields["allowed_source_roots"] == ["s3://a", "s3://b"]
    json.dumps(fields)
    task = ReplicationPoliciesOperator(task_id="policies", policies=[given], defaults=DEFAULTS)
    (policy,) = task.execute({})  # type: ignore[arg-type]
    assert (policy["name"], policy["problem"]) == ("2024", None)


def problems(policies: list[Any], defaults: dict[str, Any] = DEFAULTS) -> dict[str, str | None]:
    """Return the problem of each policy, by the task that reads policies."""
    task = ReplicationPoliciesOperator(task_id="policies", policies=policies, defaults=defaults)
    results = task.execute({})  # type: ignore[arg-type]
    assert all(set(result) == {*NAMES, "problem"} for result in results)
    return {result["name"]: result["problem"] for result in results}


@pytest.mark.parametrize(
    "policies",
    [[{"source_database": "a", "target_database": "b"}, "B"], ["a", {"source_database": "A", "name": "z"}]],
)
def test_policies_that_get_in_each_others_way(policies: list[Any]) -> None:
    by_name = problems([*policies, "healthy"])
    assert by_name.pop("healthy") is None
    assert len(by_name) == 2
    for problem in by_name.values():
        assert problem is not None
        assert problem.startswith("ConfigurationError: Several replication policies have the target_database")


@pytest.mark.parametrize(
    ("policy", "name", "problem"),
    [
        ({"source_database": "a", "colour": "red"}, "a", "colour"),
        ({"target_database": "b"}, "b", "source_database"),
        (
            {"source_database": "a", "target_database": "healthy", "into_existing": "perhaps"},
            "healthy",
            "perhaps",
        ),
        (
            {"source_database": "a", "allowed_source_roots": True},
            "a",
            "allowed_source_roots of the replication",
        ),
        ({"source_database": "a", "allowed_source_roots": [1]}, "a", "is of type int"),
        ({"source_database": "a", "allowed_source_roots": {"s3://b": 1}}, "a", "is of type dict"),
        ({"source_database": date(2026, 1, 1)}, "2026-01-01", "source_database of the replication policy is"),
        ({"source_database": "a", "include_tables": date(2026, 1, 1)}, "a", "is of type date"),
        ({"source_database": "a", "name": True}, "True", "name of the replication policy is of type bool"),
        ({"source_database": "a", 1: 2}, "a", "no fields named ['1']"),
        (3, "3", "no replication policy"),
        ({}, "(without a name)", "needs the fields"),
    ],
)
def test_a_policy_that_cannot_be_carried_out_stops_no_other(policy: Any, name: str, problem: str) -> None:
    task = ReplicationPoliciesOperator(task_id="policies", policies=[policy, "healthy"], defaults=DEFAULTS)
    bad, good = task.execute({})  # type: ignore[arg-type]
    assert (bad["name"], good["name"], good["problem"]) == (name, "healthy", None)
    assert problem in bad["problem"]
    decide = ReplicationBranchOperator(
        task_id="decide",
        policy={**POLICY, "name": bad["name"]},
        target_conn_id="nowhere",
        bootstrap_task_id="x",
        increment_task_id="y",
        problem=bad["problem"],
    )
    with pytest.raises(AirflowFailException) as failed:
        decide.execute({})  # type: ignore[arg-type]
    assert str(failed.value) == bad["problem"]


def test_a_load_after_no_dump_is_skipped() -> None:
    load = ReplicationLoadOperator(
        task_id="load", policy=POLICY, source_conn_id="a", target_conn_id="b", dump=[None, None]
    )
    load.ends = lambda: (None, None, ReplicationPolicy(**POLICY))  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(AirflowSkipException):
        load.execute({})  # type: ignore[arg-type]


def test_tables_as_assets() -> None:
    where = namespace(MetastoreSettings(uris=("thrift://one:9084", "thrift://two:9083")))
    table = TableDataset(namespace=where, database="sales", table="orders")
    assert table.asset.uri == "hive://one:9084/sales/orders"
    asset_events: list[tuple[Any, Any]] = []

    class Events:
        """Aliases have no hash in Airflow 3.1."""

        def __getitem__(self, alias: Any) -> Any:
            assert alias == REPLICATED
            return SimpleNamespace(add=lambda asset, extra: asset_events.append((asset.uri, extra)))

    announce({"outlet_events": Events()}, REPLICATED, [table], {"event_id": 7})  # type: ignore[typeddict-item]
    assert asset_events == [("hive://one:9084/sales/orders", {"event_id": 7})]
    announce({}, REPLICATED, [table], {})


@pytest.mark.parametrize(
    ("uri", "where"),
    [
        ("thrift://one", "hive://one:9083"),
        ("thrift://[::1]:9084", "hive://[::1]:9084"),
        ("grpc://[fe80::2]", "hive://[fe80::2]:9083"),
    ],
)
def test_the_address_of_a_metastore_names_its_tables(uri: str, where: str) -> None:
    assert namespace(MetastoreSettings(uris=(uri,))) == where
    asset = TableDataset(namespace=where, database="sales", table="orders").asset
    assert asset.uri == f"{where}/sales/orders"


def test_tables_as_datasets() -> None:
    task = ReplicationLoadOperator(
        task_id="load", policy=POLICY, source_conn_id="a", target_conn_id="b", dump="x"
    )
    assert task.get_openlineage_facets_on_complete(None).outputs == []
    task.lineage = Lineage(
        inputs=[TableDataset(namespace="hive://one:9083", database="shop", table="orders")],
        outputs=[TableDataset(namespace="hive://two:9083", database="copy", table="orders", rows=3)],
    )
    facets = task.get_openlineage_facets_on_complete(None)
    assert facets.run_facets == {}
    assert [(dataset.namespace, dataset.name) for dataset in facets.inputs] == [
        ("hive://one:9083", "shop.orders")
    ]
    (written,) = facets.outputs
    assert (written.namespace, written.name) == ("hive://two:9083", "copy.orders")
    assert written.outputFacets["outputStatistics"].rowCount == 3
    assert written.facets == {}
    task.lineage = Lineage(skipped={"events": "it is kept by Iceberg"})
    facet = task.get_openlineage_facets_on_complete(None).run_facets[SKIPPED_TABLES]
    assert json.loads(Serde.to_json(facet))["tables"] == {"events": "it is kept by Iceberg"}

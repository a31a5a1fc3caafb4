"""Tasks and commands of clusters publish the places of tables, failures and routes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.cli import cluster, route
from airflow_hive_federation.cli.main import main
from airflow_hive_federation.clusters.assignment import AssignReport
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.clusters.running import RoutedStatement
from airflow_hive_federation.errors import LockTimeoutError
from airflow_hive_federation.hooks.compat import AirflowException, AirflowFailException
from airflow_hive_federation.hooks.error_translation import as_airflow_error
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.operators.cluster_status import ClusterStatusOperator
from airflow_hive_federation.operators.clusters import (
    ChangePrimaryOperator,
    CopyToClusterOperator,
    KeepCopiesOperator,
)
from airflow_hive_federation.operators.routed_sql import RoutedSqlOperator
from airflow_hive_federation.published.clusters import (
    CLUSTERS,
    PLACED,
    ROUTED,
    ROUTES,
    PlacedTable,
    PublishedRoute,
)
from airflow_hive_federation.published.directory import StateDirectory, key_of
from tests.support.two_clusters import two_clusters
from tests.support.warehouse import Warehouse, copied, table

REGISTRY = two_clusters("/one", "/two")
TASK = SimpleNamespace(
    dag_id="d", run_id="r", task_id="t", map_index=-1, xcom_push=lambda *, key, value: None
)
CONTEXT: Any = {"ti": TASK}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDirectory:
    uri = f"file:{tmp_path / 'state'}"
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", uri)
    return StateDirectory(uri)


@pytest.fixture
def warehouse(monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    """Return a metastore that all operators and commands of clusters open: two tables, one copy of each."""
    warehouse = Warehouse()
    fresh, behind = table("fresh", primary="C1"), table("behind", primary="C1")
    copied(fresh)
    copied(behind, stale=True)
    warehouse.tables = {"d": [fresh, behind]}

    @contextmanager
    def opened(*_: object) -> Iterator[tuple[MetastoreClient, ClusterRegistry, Any]]:
        with as_airflow_error():
            yield warehouse.client, REGISTRY, {}

    @contextmanager
    def opened_by_command(*_: object) -> Iterator[tuple[MetastoreClient, ClusterRegistry, Any]]:
        yield warehouse.client, REGISTRY, SimpleNamespace(storage_options={}, settings=None)

    for kind in (ClusterStatusOperator, CopyToClusterOperator, ChangePrimaryOperator, RoutedSqlOperator):
        monkeypatch.setattr(kind, "_open", opened)
    for module in (cluster, route):
        monkeypatch.setattr(module, "opened", opened_by_command)
    return warehouse


def tables(place: StateDirectory, metastore: str = "hive_federation_default") -> dict[str, PlacedTable]:
    found = place.read(CLUSTERS, key_of("d", metastore), PLACED)
    return {table.name: table for table in found.tables} if found else {}


def routes(place: StateDirectory) -> list[PublishedRoute]:
    found = place.read(ROUTES, key_of("hive_federation_default"), ROUTED)
    return list(found.routes) if found else []


@pytest.mark.usefixtures("warehouse")
def test_a_task_publishes_what_is_where(place: StateDirectory) -> None:
    result = ClusterStatusOperator(task_id="look").execute(CONTEXT)
    assert result == {"tables": 2, "copies": 2, "stale": 1, "problems": {}}
    found = tables(place)
    assert {name: each.copies[0].stale for name, each in found.items()} == {"d.fresh": 0, "d.behind": 1}
    assert found["d.fresh"].by.dag_id == "d"


@pytest.mark.usefixtures("warehouse")
def test_a_command_prints_and_publishes_what_is_where(
    place: StateDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["cluster", "status", "--stale", "--database", "d"]) == 0
    printed = capsys.readouterr().out
    assert "d.behind" in printed
    assert "C2: stale" in printed
    assert "d.fresh" not in printed
    assert "2 tables: 2 with copies, 1 of these stale" in printed
    assert list(tables(place)) == ["d.behind", "d.fresh"]
    assert tables(place)["d.fresh"].by.command == "cluster status"
    assert main(["cluster", "status", "--json", "--metastore", "other"]) == 0
    assert [look["table"] for look in json.loads(capsys.readouterr().out)] == ["d.fresh", "d.behind"]
    # Without a directory in the environment, commands publish nothing.
    monkeypatch.delenv("AIRFLOW__HIVE_FEDERATION__STATE_URI")
    assert main(["cluster", "status", "--metastore", "third"]) == 0
    assert tables(place, "other")
    assert not tables(place, "third")


def test_a_task_that_fails_is_a_failure_of_its_table_until_one_succeeds(
    place: StateDirectory, warehouse: Warehouse
) -> None:
    copy = CopyToClusterOperator(task_id="work", table="D.Absent", cluster="C2")
    for _ in range(2):
        with pytest.raises(AirflowException):
            copy.execute(CONTEXT)
    failed = tables(place)["d.absent"]
    assert (failed.failures, failed.by.task_id) == (2, "t")
    assert failed.error.startswith("NoSuchObjectError: There is no table d.absent")
    assert failed.remedy
    with pytest.raises(AirflowException):
        CopyToClusterOperator(task_id="work", table="no name", cluster="C2").execute(CONTEXT)
    assert list(tables(place)) == ["d.absent"]
    warehouse.tables["d"].append(table("absent", primary="C1"))
    copy.state(CONTEXT).looked(warehouse.client, REGISTRY, "D.Absent")
    assert (tables(place)["d.absent"].failures, tables(place)["d.absent"].primary) == (0, "C1")


def test_operators_name_the_table_of_their_failures() -> None:
    assert ChangePrimaryOperator(task_id="p", table="d.t", cluster="C2").worked_on == "d.t"
    keep = KeepCopiesOperator(task_id="keep", rule="all of Sales.Items in C2")
    assert keep.worked_on.lower() == "sales.items"
    keep.rule = "nonsense"
    assert keep.worked_on == ""


@pytest.mark.usefixtures("warehouse")
def test_a_command_that_fails_is_a_failure_of_its_table(
    place: StateDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "drop-copy", "d.absent", "C2"]) == 1
    assert "There is no table d.absent" in capsys.readouterr().err
    assert tables(place)["d.absent"].by.command == "cluster drop-copy"


def test_routes_are_published_with_the_tables_that_routing_has_read(
    place: StateDirectory, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse.settings = MetastoreSettings(uris=("thrift://one:9083",))
    monkeypatch.setattr(RoutedSqlOperator, "_run", lambda *_: {})
    script = "SELECT 'SECRET' FROM d.fresh; USE CLUSTER c2; SELECT 1 FROM d.behind"
    task = RoutedSqlOperator(task_id="sql", sql=script, check_files=False, record=False)
    with pytest.raises(AirflowException, match="stale there"):
        task.execute(CONTEXT)
    found = routes(place)
    assert [(each.cluster, bool(each.refused), each.tables) for each in found] == [
        ("C1", False, ("d.fresh",)),
        ("C2", False, ()),
        ("", True, ("d.behind",)),
    ]
    assert "stale there" in found[2].refused
    assert found[0].by.task_id == "t"
    assert {name: each.copies[0].stale for name, each in tables(place).items()} == {
        "d.fresh": 0,
        "d.behind": 1,
    }
    assert "SECRET" not in str(found)
    # Statements before the refusal have their lineage.
    facets = task.get_openlineage_facets_on_complete(None)
    assert ([read.name for read in facets.inputs], facets.outputs) == (["d.fresh"], [])


def test_a_task_whose_script_has_written_is_not_retried(
    place: StateDirectory, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    registry = two_clusters(f"file:{tmp_path}/one", f"file:{tmp_path}/two")

    @contextmanager
    def opened(*_: object) -> Iterator[tuple[MetastoreClient, ClusterRegistry, Any]]:
        with as_airflow_error():
            yield warehouse.client, registry, {}

    def run(_operator: object, routed: RoutedStatement, *_: object) -> dict[str, object]:
        ran.append(routed.text)
        if len(ran) == 2:
            raise LockTimeoutError("Writers of d.fresh do not end.")
        return {}

    ran: list[str] = []
    warehouse.settings = MetastoreSettings(uris=("thrift://one:9083",))
    monkeypatch.setattr(RoutedSqlOperator, "_open", opened)
    monkeypatch.setattr(RoutedSqlOperator, "_run", run)
    script = "INSERT INTO d.fresh SELECT 1; SELECT 1 FROM d.behind"
    task = RoutedSqlOperator(task_id="sql", sql=script, check_files=False, record=False)
    with pytest.raises(AirflowFailException, match=r"do not end\..*may have written to d\.fresh"):
        task.execute(CONTEXT)
    assert len(ran) == 2
    assert not [*tmp_path.rglob("writes-*")]


@pytest.mark.usefixtures("warehouse")
def test_the_command_route_publishes_its_answers(
    place: StateDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--cluster", "C2", "--no-file-check"]
    assert main(["route", "SELECT 1 FROM d.fresh; SELECT 1 FROM d.behind", *arguments]) == 1
    capsys.readouterr()
    found = routes(place)
    assert [(each.cluster, bool(each.refused)) for each in found] == [("C2", False), ("", True)]
    assert found[0].by.command == "route"
    monkeypatch.delenv("AIRFLOW__HIVE_FEDERATION__STATE_URI")
    assert main(["route", "SELECT 1 FROM d.fresh", *arguments]) == 0
    assert len(routes(place)) == 2


def test_an_assignment_publishes_primaries(place: StateDirectory) -> None:
    state = ClusterStatusOperator(task_id="t").state(CONTEXT)
    done = AssignReport(cluster="C2", changed=["d.a"], elsewhere={"d.b": "C1"})
    state.assigned(AssignReport(cluster="C2", changed=["d.a"], dry_run=True), REGISTRY)
    assert tables(place) == {}
    state.assigned(done, REGISTRY)
    assert {name: each.primary for name, each in tables(place).items()} == {"d.a": "C2", "d.b": "C1"}
    state.assigned(AssignReport(cluster="C2", undo=True, changed=["d.a"]), REGISTRY)
    assert (tables(place)["d.a"].primary, tables(place)["d.a"].assigned) == ("C1", False)

"""Copies that follow the events of real Hive, and the advice that leads to them, in tasks of Airflow's."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.cli.main import main
from airflow_hive_federation.clusters.altering import alter_table, partitions_by_name
from airflow_hive_federation.clusters.keep_rules import read_rule
from airflow_hive_federation.clusters.keeping import POSITION, KeepReport, keep_current
from airflow_hive_federation.clusters.metadata import read_metadata
from airflow_hive_federation.clusters.registry import ClusterRegistry, read_registry
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.copying import copy_file
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.plan_files import read_plan
from tests.support.airflow_homes import new_airflow
from tests.support.line_servers import line_server

DATABASE = "kept"
TODAY = date.today()  # noqa: DTZ011 - the day that current_date means
NEXT_PRIMARY = "hive.cluster.primary.next"
DAYS = [(TODAY - timedelta(days=back)).isoformat() for back in range(4)]
#: A DAG's module, and the configuration of its run.
Run = tuple[str, dict[str, Any]]
TaskInstance = dict[str, Any]
RUNNER = Path(__file__).parents[1] / "airflow_dags" / "following_advice.py"


@pytest.fixture(scope="module")
def registry_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("roots")
    properties = {
        name: {"fileSystem": f"{root}/{name}", "jobTracker": f"spark_{name.lower()}"} for name in ("C1", "C2")
    }
    path = root / "clusters.json"
    path.write_text(json.dumps({"hive.cluster.properties": properties, "hive.default.cluster.name": "C1"}))
    return path


@pytest.fixture(scope="module")
def registry(registry_file: Path) -> ClusterRegistry:
    return read_registry(registry_file.read_text(), origin="the test")


@pytest.fixture(scope="module", autouse=True)
def tables(hive_sql_source: HiveSql) -> None:
    values = ", ".join(f"({number}, '{day}')" for number, day in enumerate(DAYS[1:]))
    for statement in (
        f"CREATE DATABASE {DATABASE}",
        f"CREATE EXTERNAL TABLE {DATABASE}.orders (id INT) PARTITIONED BY (day STRING)",
        f"INSERT INTO {DATABASE}.orders VALUES {values}",
        f"CREATE EXTERNAL TABLE {DATABASE}.items (id INT)",
        f"INSERT INTO {DATABASE}.items VALUES (1), (2)",
    ):
        hive_sql_source.execute(statement)


def run_copy(plan: str, outcomes: str) -> None:
    for item in list(read_plan(plan)):
        copy_file(item)


def copies(client: MetastoreClient) -> set[str]:
    parts = partitions_by_name(client, client.get_table(DATABASE, "orders"))
    return {name for name, part in parts.items() if read_metadata(part.parameters, name).secondaries}


def set_parameter(client: MetastoreClient, key: str, value: str | None) -> None:
    def changed(now: types.Table) -> types.Table:
        others = {name: text for name, text in (now.parameters or {}).items() if name != key}
        now.parameters = others if value is None else {**others, key: value}
        return now

    alter_table(client, f"{DATABASE}.orders", changed)


def position_of(client: MetastoreClient) -> str:
    return (client.get_table(DATABASE, "orders").parameters or {})[f"{POSITION}C2"]


def test_copies_follow_the_events(
    client: MetastoreClient, registry: ClusterRegistry, hive_sql_source: HiveSql
) -> None:
    def keep(rule: str, run: Any = run_copy, **settings: Any) -> KeepReport:
        return keep_current(client, registry, read_rule(rule), run, today=TODAY, **settings)

    three = f"last 3 days of {DATABASE}.orders in C2"
    report = keep(three)
    assert (sorted(report.copied), report.because) == (
        sorted(f"day={day}" for day in DAYS[1:3]),
        "the copies have no position yet",
    )
    # Of what it has written itself, the events name the partitions; none of them is copied again.
    assert (keep(three).because, keep(three).copied) == ("", [])
    position = position_of(client)
    idle = keep(three)
    # Neither the event of its own position nor those of others move it: there would be no end of that.
    assert (idle.because, idle.looked_at, position_of(client)) == ("", 0, position)
    for number in range(2):
        hive_sql_source.execute(f"CREATE EXTERNAL TABLE {DATABASE}.other_{number} (id INT)")
    assert (keep(three).because, position_of(client)) == ("", position)
    hive_sql_source.execute(f"INSERT INTO {DATABASE}.orders VALUES (7, '{DAYS[0]}'), (8, '{DAYS[3]}')")

    def interrupted(plan: str, outcomes: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        keep(three, interrupted)
    # The day before the window has changed, too, and is none of the rule's.
    report = keep(three)
    assert (report.because, report.looked_at, report.copied) == ("", 1, [f"day={DAYS[0]}"])
    assert copies(client) == {f"day={day}" for day in DAYS[:3]}
    # A position that is damaged, of another metastore or of its future has everything compared.
    present = json.loads(position_of(client))
    for change in (None, {"event": 10**9}, {"metastore": "other"}, {"compared": "2020-01-01T00:00:00+00:00"}):
        text = "7" if change is None else json.dumps({**present, **change})

        set_parameter(client, f"{POSITION}C2", text)
        assert keep(three).looked_at == 3
    two = three.replace("3", "2")
    assert (keep(two).because, keep(two).dropped) == ("the position is of another rule", [])
    assert copies(client) == {f"day={day}" for day in DAYS[:3]}
    # The words drop the copies of days before the window; the primary keeps its rows.
    dropping = f"{two} dropping older"
    # A change of the primary that was interrupted needs all copies.
    set_parameter(client, NEXT_PRIMARY, "C2")
    assert (keep(dropping).because, copies(client)) == (
        "the position is of another rule",
        {f"day={day}" for day in DAYS[:3]},
    )
    set_parameter(client, NEXT_PRIMARY, None)
    report = keep(dropping, compare_after=timedelta(0))
    assert (report.dropped, report.removed) == ([f"day={DAYS[2]}"], [])
    assert copies(client) == {f"day={day}" for day in DAYS[:2]}
    # Statements that were planned before find its rows until a later run that compares all.
    (older,) = [place for place in report.left if DAYS[2] in place]
    assert list(Path(str(local_path(older))).iterdir())
    report = keep(dropping, compare_after=timedelta(0), at_once=True)
    assert older in report.removed
    assert not Path(str(local_path(older))).exists()
    assert [row[0] for row in hive_sql_source.execute(f"SELECT count(*) FROM {DATABASE}.orders")] == ["5"]
    with pytest.raises(ConfigurationError, match="no partition keys"):
        keep(f"last 3 days of {DATABASE}.items in C2")


def test_a_table_without_partitions_follows_its_events(
    client: MetastoreClient, registry: ClusterRegistry, hive_sql_source: HiveSql
) -> None:
    rule, name = read_rule(f"all of {DATABASE}.items in C2"), f"{DATABASE}.items"
    assert keep_current(client, registry, rule, run_copy).copied == [name]
    assert keep_current(client, registry, rule, run_copy).copied == []
    hive_sql_source.execute(f"INSERT INTO {name} VALUES (3)")
    report = keep_current(client, registry, rule, run_copy)
    assert (report.because, report.copied) == ("", [name])


@pytest.fixture(scope="module")
def airflow(
    source: EmbeddedMetastore,
    registry_file: Path,
    airflow_database: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[list[Run]], list[list[TaskInstance]]]]:
    """Run DAGs one after the other; give the task instances of each run."""
    home = tmp_path_factory.mktemp("airflow")
    demo = new_airflow(home, airflow_database)
    connection = {"conn_type": "hive_federation", "host": "127.0.0.1", "port": source.port}
    environment = {
        **demo.environment,
        "AIRFLOW_CONN_HERE": json.dumps(connection),
        **{f"AIRFLOW_CONN_SPARK_{n}": '{"conn_type": "spark", "host": "local[1]"}' for n in ("C1", "C2")},
        "AIRFLOW_VAR_HIVE_FEDERATION_CLUSTERS": registry_file.read_text(),
    }

    command = [sys.executable, str(RUNNER)]
    with line_server(command, home, environment=environment, answer_s=300) as server:
        yield server.ask


def long_day() -> date:
    """Return today, of which at least ten minutes are left: the operators go by the clock."""
    now = datetime.now()  # noqa: DTZ005 - the day that current_date means
    left = datetime.combine(now.date() + timedelta(days=1), datetime.min.time()) - now
    if left > timedelta(minutes=10):
        return now.date()
    time.sleep(left.total_seconds() + 1)
    return now.date() + timedelta(days=1)


@pytest.mark.slow
@pytest.mark.timeout(1300)  # it may begin just before midnight
def test_a_refused_statement_runs_once_the_advice_is_followed(
    airflow: Callable[[list[Run]], list[list[TaskInstance]]],
    source: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    registry_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    days = [(long_day() - timedelta(days=back)).isoformat() for back in range(3)]
    for statement in (
        f"CREATE EXTERNAL TABLE {DATABASE}.facts (id INT) PARTITIONED BY (day STRING)",
        f"INSERT INTO {DATABASE}.facts VALUES (1, '{days[0]}'), (2, '{days[1]}'), (3, '{days[2]}')",
    ):
        hive_sql_source.execute(statement)
    command = ["cluster", "advise", "--metastore", source.uri, "--clusters", str(registry_file)]
    assert main(command) == 0
    assert "No statement of the last 7 days is recorded" in capsys.readouterr().out
    sql = f"USE CLUSTER C2; SELECT sum(id) FROM facts WHERE day >= '{days[1]}'"
    query = ("routed_query", {"metastore_conn_id": "here", "database": DATABASE, "sql": sql})
    refused = airflow([query] * 5)
    for (task,) in refused:
        assert task["state"] == "failed"
        assert [statement["cluster"] for statement in task["xcom"]["route"]] == ["C2", None]
        assert "facts partition" in task["xcom"]["route"][1]["refused"]
        assert "It could run in C2 after these copies" in "\n".join(task["xcom"]["route"][1]["route"])
        assert task["xcom"]["_link_RouteLink"].endswith("/tasks/run/xcom")
    picture = tmp_path / "advice.svg"
    assert main([*command, "--json", "--svg", str(picture)]) == 0
    answer = json.loads(capsys.readouterr().out)
    (copy,) = answer["copies"]
    assert (copy["rule"], copy["runs"], answer["refused"]) == (
        f"last 2 days of {DATABASE}.facts in C2",
        5,
        5,
    )
    assert copy["rule"] in picture.read_text()
    history = Path(answer["history"].removeprefix("file:"))
    lines = [line for path in history.rglob("*.jsonl") for line in path.read_text().splitlines()]
    assert len(lines) == 5
    assert all(days[1] not in json.loads(line)["template"] for line in lines)
    keep = ("keep_secondaries_current", {"metastore_conn_id": "here", "rules": [copy["rule"]]})
    kept, (ran,) = airflow([keep, query])
    (made,) = (task for task in kept if task["task"] == "keep")
    assert made["state"] == "success"
    assert sorted(made["xcom"]["copy"]["copied"]) == sorted(f"day={day}" for day in days[:2])
    assert made["xcom"]["copy"]["directory"].endswith(f"/C2/{DATABASE}.db/facts.copies")
    assert made["xcom"]["_link_CopyLink"].endswith("/tasks/keep/mapped/0/xcom")
    assert ran["state"] == "success"
    assert ran["xcom"]["return_value"]["statements"][1]["rows"] == [["3"]]
    assert [statement["cluster"] for statement in ran["xcom"]["route"]] == ["C2", "C2"]

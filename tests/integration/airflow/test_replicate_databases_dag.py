"""The DAG of several databases in Airflow: an instance a database, and assets that start other DAGs."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from airflow_hive_federation.demo.local_airflow import DagRun, example_dags
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from tests.support.airflow_homes import new_airflow
from tests.support.cycling import rows

DAG_ID = "replicate_databases"
ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true')"
CONSUMER = """
from airflow.sdk import DAG, Asset

with DAG(dag_id="consumer", schedule=[Asset({uri!r})]):
    pass
"""


@pytest.mark.slow
def test_two_databases_are_kept_in_step_and_report_changes(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    airflow_database: Path,
    tmp_path: Path,
) -> None:
    for database in ("dock_a", "dock_b"):
        for statement in (
            f"CREATE DATABASE {database}",
            f"CREATE TABLE {database}.ships (id int) {ACID}",
            f"CREATE TABLE {database}.idle (id int) {ACID}",
            f"INSERT INTO {database}.ships VALUES (1), (2)",
        ):
            hive_sql_source.execute(statement)
    uri = f"hive://127.0.0.1:{target.port}/dock_b_copy/ships"
    dags = tmp_path / "dags"
    dags.mkdir()
    shutil.copy(example_dags() / f"{DAG_ID}.py", dags)
    (dags / "consumer.py").write_text(CONSUMER.format(uri=uri), encoding="utf-8")
    airflow = new_airflow(tmp_path, airflow_database)
    database_file = tmp_path / "airflow" / "airflow.db"
    airflow.environment["AIRFLOW__CORE__DAGS_FOLDER"] = str(dags)
    policies = [
        {"source_database": name, "target_database": f"{name}_copy", "dump_root": f"file:{tmp_path}/dumps"}
        for name in ("dock_a", "dock_b")
    ]
    subprocess.run(airflow.command("dags", "reserialize"), env=airflow.environment, check=True)
    connections: dict[str, dict[str, object]] = {
        "spark_default": {"conn_type": "spark", "host": "local[*]"},
        **{
            name: {"conn_type": "hive_federation", "host": "127.0.0.1", "port": metastore.port}
            for name, metastore in (("hive_source", source), ("hive_target", target))
        },
    }
    variables = {"hive_replications": json.dumps(policies)}
    run = DagRun(conf={}, connections=connections, variables=variables, dag_id=DAG_ID)
    airflow.run_dag(run, lambda *_: None)
    for database in ("dock_a", "dock_b"):
        assert rows(hive_sql_target, f"SELECT id FROM {database}_copy.ships") == [("1",), ("2",)]
    with sqlite3.connect(database_file) as db:
        events = db.execute(
            "SELECT a.uri, e.extra FROM asset_event e JOIN asset a ON a.id = e.asset_id"
        ).fetchall()
        concerned = db.execute(
            "SELECT dag_id FROM dag_schedule_asset_reference r JOIN asset_event e ON e.asset_id = r.asset_id"
        ).fetchall()
    extras = {uri: json.loads(extra) for uri, extra in events}
    assert {uri.partition(str(target.port))[2] for uri in extras} == {
        f"/{database}_copy/{table}" for database in ("dock_a", "dock_b") for table in ("idle", "ships")
    }
    assert extras[uri]["source"] == "dock_b"
    assert extras[uri]["event_id"] > 0
    assert concerned == [("consumer",)]

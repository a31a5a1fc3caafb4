"""The example DAGs continue a replica in Airflow, as a schedule does, while Hive changes the source.

The source's metastore is read through a gateway over gRPC, and one of the increments is the DAG's for that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from airflow_hive_federation.demo.local_airflow import DagRun, DemoAirflow
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.hooks.compat import AirflowSensorTimeout
from airflow_hive_federation.metastore import MetastorePool, MetastoreSettings
from airflow_hive_federation.progress.events import Event, ReplicaCompared, UpToDate
from airflow_hive_federation.published.directory import (
    POSITION,
    REPLICATION,
    TABLES,
    StateDirectory,
)
from airflow_hive_federation.replication.cycle import load_dump
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.sensors.replication import ReplicationLagSensor
from tests.support.airflow_homes import new_airflow
from tests.support.cycling import rows
from tests.support.incrementing import run_copy
from tests.support.small_source import connected
from tests.support.transports import grpc_gateway

pytestmark = pytest.mark.slow

ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true')"
SETUP = f"""
CREATE DATABASE harbour;
CREATE TABLE harbour.ships (id int, name string) {ACID};
CREATE TABLE harbour.calls (ship int) PARTITIONED BY (pier string) {ACID};
CREATE TABLE harbour.wrecks (id int) {ACID};
INSERT INTO harbour.ships VALUES (1, 'Vega'), (2, 'Rigel'), (3, 'Deneb');
INSERT INTO harbour.calls PARTITION (pier) VALUES (1, 'north'), (2, 'south')"""
CHANGES = f"""
INSERT INTO harbour.ships VALUES (4, 'Altair');
UPDATE harbour.ships SET name = 'Vega II' WHERE id = 1;
DELETE FROM harbour.ships WHERE id = 2;
INSERT INTO harbour.calls PARTITION (pier) VALUES (3, 'east');
CREATE TABLE harbour.tugs (id int) {ACID};
INSERT INTO harbour.tugs VALUES (7);
DROP TABLE harbour.wrecks"""


@dataclass
class Schedule:
    """Airflow with the example DAG, whose runs come one after the other."""

    airflow: DemoAirflow
    conf: dict[str, str]
    connections: dict[str, dict[str, object]]
    lines: list[tuple[str, Event | str]] = field(default_factory=list)

    def run(self, dag_id: str) -> set[str]:
        """One run; the tasks that ran, Spark's name among them if its hook had work."""
        self.lines.clear()
        before = self.airflow.log_path.stat().st_size
        self.airflow.run_dag(
            DagRun(conf=self.conf, connections=self.connections, dag_id=dag_id),
            lambda task, entry: self.lines.append((task, entry)),
        )
        log = self.airflow.log_path.read_bytes()[before:].decode()
        # The hook writes the progress of each job, and of the small copies that need none.
        spark = {"spark"} if "SparkPipelineHook" in log else set()
        return {task for task, _ in self.lines} | spark


@pytest.fixture
def gateway(source: EmbeddedMetastore) -> Iterator[str]:
    with grpc_gateway(source.uri) as front:
        yield f"grpc://127.0.0.1:{front.port}"


def bootstrap(source: EmbeddedMetastore, target: EmbeddedMetastore, fields: dict[str, str]) -> None:
    """Bootstrap without Airflow; its DAG does that in ``test_airflow_standalone`` and ``test_demo``."""
    policy = ReplicationPolicy(**fields, external_base="/var/lib/hive-federation/external")
    with pooled(source) as source_pool, pooled(target) as target_pool:
        with source_pool.client() as client:
            start = begin_drain(client, policy.source_database)
        dumped = dump_bootstrap(source_pool, policy, start)
        load_dump(source_pool, target_pool, policy, dumped.dump, run_copy=run_copy)


def pooled(metastore: EmbeddedMetastore) -> MetastorePool:
    return MetastorePool(MetastoreSettings(uris=(metastore.uri,)), 4)


def test_the_dags_keep_a_replica_in_step(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    airflow_database: Path,
    gateway: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def write(statements: str) -> None:
        for statement in statements.split(";"):
            hive_sql_source.execute(statement)

    def assert_equal(*tables: str) -> None:
        for table in tables:
            replicated = rows(hive_sql_target, f"SELECT ROW__ID, * FROM harbour.{table}")
            assert replicated == rows(hive_sql_source, f"SELECT ROW__ID, * FROM harbour.{table}"), table

    airflow = new_airflow(tmp_path, airflow_database)
    schedule = Schedule(
        airflow,
        {
            "database": "harbour",
            "source_conn_id": "hive_source",
            "dump_root": f"file:{tmp_path / 'dumps'}",
        },
        {
            "hive_source": {"conn_type": "hive_federation", "extra": {"uris": gateway}},
            "hive_target": {"conn_type": "hive_federation", "host": "127.0.0.1", "port": target.port},
            "spark_default": {"conn_type": "spark", "host": "local[*]"},
        },
    )
    policy = {
        "name": "hive_target.harbour",
        "source_database": "harbour",
        "target_database": "harbour",
        "dump_root": schedule.conf["dump_root"],
    }
    write(SETUP)
    bootstrap(source, target, policy)
    assert_equal("ships", "calls")

    for name, fields in schedule.connections.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))
    near = ReplicationLagSensor(
        task_id="near",
        policy=policy,
        source_conn_id="hive_source",
        target_conn_id="hive_target",
        max_lag=0,
        max_lag_events=0,
        timeout=0,
        deferrable=False,
    )
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", str(tmp_path / "state"))
    near.pre_execute({})  # type: ignore[arg-type]
    assert near.execute({}) == {"events": 0, "seconds": 0.0}  # type: ignore[arg-type]
    write(CHANGES)
    with pytest.raises(AirflowSensorTimeout, match=r"behind by \d+ events"):
        near.execute({})  # type: ignore[arg-type]
    place = StateDirectory(str(tmp_path / "state"))
    (key,) = place.keys(REPLICATION)
    position, tables = place.read(REPLICATION, key, POSITION), place.read(REPLICATION, key, TABLES)
    assert position is not None
    assert tables is not None
    assert position.lag is not None
    assert position.lag.events > 0
    assert {table.name for table in tables.lagging} >= {"ships", "tugs"}
    monkeypatch.delenv("AIRFLOW__HIVE_FEDERATION__STATE_URI")
    second = schedule.run("replicate_over_grpc")
    assert second >= {"decide", "increment", "load", "verify", "spark"}
    assert not second & {"drain", "dump"}
    compared = ReplicaCompared(database="harbour", tables=3, differences=0)
    assert ("verify", compared) in schedule.lines
    assert_equal("ships", "calls", "tugs")
    assert near.execute({}) == {"events": 0, "seconds": 0.0}  # type: ignore[arg-type]
    with connected(target) as client:
        assert sorted(client.list_tables("harbour")) == ["calls", "ships", "tugs"]

    third = schedule.run("replicate_on_change")
    assert third >= {"decide", "increment", "load", "verify"}
    assert "spark" not in third
    assert any(isinstance(entry, UpToDate) for task, entry in schedule.lines if task == "load")

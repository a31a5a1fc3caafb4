"""Compaction by Spark, by the command line and by operators."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_hive_federation.cli.main import main
from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql, Row
from airflow_hive_federation.hooks.compat import AirflowFailException
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.operators.compaction import CompactionWorkerOperator, CompactTableOperator
from airflow_hive_federation.published.directory import StateDirectory, key_of
from airflow_hive_federation.published.work import COMPACTED, COMPACTION
from airflow_hive_federation.spark.compact import by_spark
from airflow_hive_federation.spark.job import run_job

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
DATABASE = "compacted_by"


@pytest.fixture(scope="module")
def hive(quick_hive: HiveSql) -> HiveSql:
    quick_hive.execute(f"create database {DATABASE}")
    return quick_hive


@pytest.fixture
def table(request: pytest.FixtureRequest, hive: HiveSql) -> str:
    """A table with two partitions, inserts and deletes, named like the test."""
    name = f"{DATABASE}.{request.node.originalname}"
    hive.execute(
        f"create table {name} (id int, name string) partitioned by (p int) stored as orc "
        "tblproperties ('transactional'='true', 'no_auto_compaction'='true')"
    )
    for start in (0, 10):
        hive.execute(f"insert into {name} values ({start}, 'a', 1), ({start + 1}, 'b', 1), ({start}, 'c', 2)")
    hive.execute(f"delete from {name} where id = 11")
    return name


def rows(hive: HiveSql, table: str) -> list[Row]:
    return sorted(hive.execute(f"select ROW__ID, * from {table}"), key=repr)


def test_spark_tasks(table: str, hive: HiveSql, source: EmbeddedMetastore, spark: SparkSession) -> None:
    before = rows(hive, table)
    location = source.warehouse / f"{DATABASE}.db" / table.partition(".")[2]
    broken = location / "p=2" / "delta_0000001_0000001_0000" / "bucket_00000_0"
    content = broken.read_bytes()
    broken.write_bytes(content[:-20])
    settings = MetastoreSettings(uris=(source.uri,))
    runner = by_spark(lambda job, arguments, _: run_job(spark, job, arguments))
    reports = {
        report.partition: report for report in compact_table(settings, table, CompactionKind.MAJOR, runner)
    }
    assert reports["p=1"].state == "compacted"
    assert (reports["p=1"].rows, reports["p=1"].deleted) == (3, 1)
    assert reports["p=2"].state == "failed"
    assert str(broken) in reports["p=2"].message
    assert not list(location.rglob("_compaction*"))
    broken.write_bytes(content)
    assert rows(hive, table) == before


def test_command_line(
    table: str, hive: HiveSql, source: EmbeddedMetastore, capsys: pytest.CaptureFixture[str]
) -> None:
    before = rows(hive, table)
    assert main(["compact", table, "--metastore", source.uri, "--partition", "p=1", "--json"]) == 0
    compaction = json.loads(capsys.readouterr().out)
    assert (compaction["state"], compaction["rows"], compaction["deleted"]) == ("compacted", 3, 1)
    # A pool of its own: in the default one wait the initiator's requests for other tests' tables.
    hive.execute(f"alter table {table} partition (p=2) compact 'minor' pool 'by_hand'")
    assert (
        main(["compact", "worker", "--metastore", source.uri, "--pool-name", "by_hand", "--until-empty"]) == 0
    )
    assert "delta_0000001_000000" in capsys.readouterr().out
    assert rows(hive, table) == before
    assert main(["compact", table, "--metastore", source.uri, "--partition", "p=99"]) == 1
    assert "p=99" in capsys.readouterr().err
    assert main(["compact", f"{DATABASE}.nothing", "--metastore", source.uri]) == 1
    assert "nothing" in capsys.readouterr().err


@pytest.mark.slow
def test_operators(
    table: str,
    hive: HiveSql,
    source: EmbeddedMetastore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", str(tmp_path))
    host, _, port = source.uri.removeprefix("thrift://").partition(":")
    connection = {"conn_type": "hive_federation", "host": host, "port": int(port)}
    monkeypatch.setenv("AIRFLOW_CONN_COMPACTED", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_HERE", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    before = rows(hive, table)
    by_submit = CompactTableOperator(
        task_id="major",
        table=table,
        partitions=["p=1"],
        metastore_conn_id="compacted",
        spark_conn_id="spark_here",
    )
    (compaction,) = by_submit.execute({})["compactions"]
    assert (compaction["state"], compaction["rows"]) == ("compacted", 3)
    queued = CompactTableOperator(
        task_id="queued",
        table=table,
        kind="minor",
        partitions=["p=2"],
        wait=False,
        pool_name="operators",
        metastore_conn_id="compacted",
    )
    assert queued.execute({})["requests"][0]["accepted"]
    worker = CompactionWorkerOperator(
        task_id="worker",
        until_empty=True,
        pool_name="operators",
        metastore_conn_id="compacted",
        spark_conn_id=None,
    )
    assert worker.execute({}) == {"compacted": 1, "cleaning": 0, "refused": 0, "failed": 0}
    published = StateDirectory(str(tmp_path)).read(COMPACTION, key_of("compacted"), COMPACTED)
    assert published is not None
    assert [(done.table, done.partition, done.state) for done in published.finished] == [
        (table, "p=1", "compacted"),
        (table, "p=2", "compacted"),
    ]
    assert published.states
    assert sum(published.states.values()) >= 2
    assert rows(hive, table) == before
    broken = source.warehouse / f"{DATABASE}.db" / "test_operators" / "p=2"
    for bucket in Path(broken).rglob("bucket_*"):
        bucket.write_bytes(b"no ORC")
    hive.execute(f"insert into {table} values (99, 'z', 2)")
    hive.execute(f"insert into {table} values (98, 'z', 2)")
    failing = CompactTableOperator(
        task_id="failing",
        table=table,
        partitions=["p=2"],
        metastore_conn_id="compacted",
        spark_conn_id=None,
    )
    with pytest.raises(AirflowFailException, match="1 of 1 compactions"):
        failing.execute({})

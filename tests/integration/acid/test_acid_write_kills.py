"""A driver killed while writing, tasks that fail, and tasks that run twice: Hive judges."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.load.kept_out import KeptOut
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.runtime.java import spark_java_home
from airflow_hive_federation.tables.write import statements
from airflow_hive_federation.tables.write.batches import collect_from_workers
from airflow_hive_federation.tables.write.statements import append
from airflow_hive_federation.transactions.locks import read_components
from airflow_hive_federation.waiting import PollPolicy, wait_until

pytestmark = pytest.mark.slow

DATABASE = "write_kills"
POLICY = ReplicationPolicy(name="p", source_database=DATABASE, dump_root="file:/nowhere")
#: A killed writer is waited for as long: longer than a busy machine keeps a heartbeat waiting, and not much.
SETTINGS = {
    "metastore.txn.timeout": "10s",
    "hive.txn.timeout": "10s",
    "metastore.acid.housekeeper.interval": "1s",
}

# The driver writes 400 rows in four tasks per table. In the first table, a task fails at first. The
# driver dies when the second table's write stands before its publication, and the third one's before its
# commit.
DRIVER = """
import json, os, signal, sys, threading

from pyspark import TaskContext
from pyspark.sql import SparkSession

from airflow_hive_federation.tables.write import statements
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings

uri, failing, *tables = sys.argv[1:]
settings = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
}
building = SparkSession.builder.master("local[2,4]").appName("kills")
for name, value in settings.items():
    building = building.config(name, value)
spark = building.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

def failing_once(batches):
    context = TaskContext.get()
    for number, batch in enumerate(batches):
        if number == 5 and context.partitionId() == context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails")
        yield batch

dying = threading.Barrier(2, lambda: os.kill(os.getpid(), signal.SIGKILL))
publish = statements.publish
def publish_or_die(publications):
    table = publications[0].statement.layout.table
    if table == "driver_publishing":
        dying.wait()
    publish(publications)
    if table == "driver_commit":
        dying.wait()

statements.publish = publish_or_die

def append(table):
    rows = spark.range(0, 400, 1, 4).selectExpr("cast(id as int) id")
    if table == failing:
        rows = rows.mapInArrow(failing_once, "id int")
    with MetastoreClient(MetastoreSettings(uris=(uri,))) as client:
        print(json.dumps({table: statements.append(spark, client, table, rows).inserted}), flush=True)

append(failing)
writers = [threading.Thread(target=append, args=[table]) for table in tables]
for writer in writers:
    writer.start()
for writer in writers:
    writer.join()
"""


@pytest.fixture(scope="module")
def metastore() -> Iterator[EmbeddedMetastore]:
    with EmbeddedMetastore.start("write-kills", settings=SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def hive(metastore: EmbeddedMetastore) -> Iterator[HiveSql]:
    with HiveSql(metastore) as sql:
        sql.execute(f"create database {DATABASE}")
        yield sql


@pytest.fixture(scope="module")
def client(metastore: EmbeddedMetastore) -> Iterator[MetastoreClient]:
    with MetastoreClient(MetastoreSettings(uris=(metastore.uri,))) as connected:
        yield connected


def create(hive: HiveSql, table: str) -> str:
    name = f"{DATABASE}.{table}"
    hive.execute(f"create table {name} (id int) stored as orc tblproperties ('transactional'='true')")
    return name


def run(metastore: EmbeddedMetastore, *tables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "JAVA_HOME": str(spark_java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    return subprocess.run(
        [sys.executable, "-c", DRIVER, metastore.uri, *tables],
        check=False,
        env=environment,
        cwd=metastore.directory,
        stdout=subprocess.PIPE,
        text=True,
        timeout=200,
    )


def place(metastore: EmbeddedMetastore, table: str) -> Path:
    return metastore.warehouse / f"{DATABASE}.db" / table.partition(".")[2]


def names(metastore: EmbeddedMetastore, table: str) -> list[str]:
    return sorted(path.name for path in place(metastore, table).iterdir())


def identities(hive: HiveSql, table: str) -> list[tuple[Any, ...]]:
    return [
        (*json.loads(row[0] or "").values(), int(row[1] or 0))
        for row in hive.execute(f"select ROW__ID, id from {table}")
    ]


def check_all_rows(metastore: EmbeddedMetastore, hive: HiveSql, table: str) -> None:
    """Hive finds each row of four tasks once, and each task has one file."""
    rows = identities(hive, table)
    assert sorted(row[-1] for row in rows) == list(range(400))
    assert len({row[:-1] for row in rows}) == 400
    assert names(metastore, table) == ["delta_0000001_0000001_0000"]
    assert len(list(place(metastore, table).glob("delta_*/bucket_*"))) == 4


def test_attempts_that_do_not_count_leave_nothing(
    metastore: EmbeddedMetastore,
    client: MetastoreClient,
    hive: HiveSql,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow task may end after the second attempt that Spark makes of it."""
    table = create(hive, "task_twice")

    def twice(*arguments: Any) -> list[Row]:
        collect_from_workers(*arguments)
        return collect_from_workers(*arguments)

    monkeypatch.setattr(statements, "collect_from_workers", twice)
    rows = spark.range(0, 400, 1, 4).selectExpr("cast(id as int) id")
    assert append(spark, client, table, rows).inserted == 400
    check_all_rows(metastore, hive, table)


def test_a_killed_driver_leaves_nothing_visible(
    metastore: EmbeddedMetastore, client: MetastoreClient, hive: HiveSql, spark: SparkSession
) -> None:
    failing = create(hive, "task_fails")
    tables = [create(hive, f"driver_{moment}") for moment in ("publishing", "commit")]
    # It was killed before, so it would time out earlier.
    is_kept_out = kill_a_load(client)
    killed = run(metastore, failing, *tables)
    assert killed.returncode == -9
    assert json.loads(killed.stdout) == {failing: 400}
    check_all_rows(metastore, hive, failing)
    txn_ids = set()
    for table in tables:
        left = names(metastore, table)
        (staged,) = (name for name in left if name.startswith(".hive-staging_spark_"))
        txn_ids.add(int(staged.split("_")[2]))
        assert any(name.startswith("delta_") for name in left) is table.endswith("commit")
        assert hive.execute(f"select count(*) from {table}") == [("0",)]
    # Heartbeats are missing: the metastore ends them.
    assert wait_until(lambda: not txn_ids & open_txns(client), PollPolicy(longest_s=0.5, timeout_s=90))
    assert is_kept_out()
    repeat_the_load(client)
    assert not is_kept_out()
    for table in tables:
        assert hive.execute(f"select count(*) from {table}") == [("0",)]
        rows = spark.range(400).selectExpr("cast(id as int) id")
        assert append(spark, client, table, rows).inserted == 400
        # It swept what was hidden; the aborted delta is for Hive's cleaner, or stays unseen.
        assert not any(name.startswith(".") for name in names(metastore, table))
        assert sorted(row[-1] for row in identities(hive, table)) == list(range(400))


def kill_a_load(client: MetastoreClient) -> Callable[[], bool]:
    """Leave the lock by which a load has kept the readers of a replica out.

    :return: a function that returns whether a reader of the replica waits.
    """
    KeptOut(client, POLICY, "replica").lock(lambda: None)

    def is_kept_out() -> bool:
        answer: Any = client.lock(read_components([f"{DATABASE}.replica"]))
        client.unlock(answer.lockid)
        return bool(answer.state == types.LockState.WAITING)

    assert is_kept_out()
    return is_kept_out


def repeat_the_load(client: MetastoreClient) -> None:
    """Have the next load find that lock, also while a reader waits for it, and end it."""
    reader: Any = client.lock(read_components([f"{DATABASE}.replica"]))
    repeated = KeptOut(client, POLICY, "replica")
    assert repeated.is_left
    repeated.lock(lambda: None)
    repeated.check()
    repeated.end()
    client.unlock(reader.lockid)


def open_txns(client: MetastoreClient) -> set[int]:
    opened: Any = client.call("get_open_txns_info")
    return {int(open_txn.id) for open_txn in opened.open_txns if open_txn.state == types.TxnState.OPEN}

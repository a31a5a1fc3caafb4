"""Replicate one ACID table between two metastores that this script starts; Hive reads both sides."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastorePool, MetastoreSettings
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain, drain
from airflow_hive_federation.replication.load.load import load_into_target
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.runtime.java import spark_java_home
from airflow_hive_federation.spark.job import run_job

STATEMENTS = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.orders (id int, item string) STORED AS ORC TBLPROPERTIES ('transactional'='true')",
    "INSERT INTO shop.orders VALUES (1, 'pear'), (2, 'plum'), (3, 'fig')",
    "UPDATE shop.orders SET item = 'quince' WHERE id = 2",
    "DELETE FROM shop.orders WHERE id = 3",
)

os.environ.update(JAVA_HOME=str(spark_java_home()), PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
with ExitStack() as stack:
    root = Path(stack.enter_context(TemporaryDirectory()))
    ends = [stack.enter_context(EmbeddedMetastore.start(name)) for name in ("source", "target")]
    pools = [stack.enter_context(MetastorePool(MetastoreSettings(uris=(end.uri,)), 4)) for end in ends]
    with HiveSql(ends[0]) as sql:
        for statement in STATEMENTS:
            sql.execute(statement)
        expected = sql.execute("SELECT ROW__ID, * FROM shop.orders")
    local = f"file:{ends[0].warehouse}"  # Of local disks, a policy must allow what is copied.
    policy = ReplicationPolicy(
        name="shop", source_database="shop", dump_root=f"file:{root}", allowed_source_roots=[local]
    )
    with pools[0].client() as client:
        start = begin_drain(client, "shop")
        drain(client, start, timeout_s=policy.open_txn_timeout_s)
    dump = dump_bootstrap(pools[0], policy, start)

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    stack.callback(spark.stop)

    def run_copy(plan: str, outcomes: str) -> None:
        run_job(spark, "copy-files", ["--plan", plan, "--outcomes", outcomes, "--source-root", local])

    load_into_target(*pools, policy, dump.dump, run_copy=run_copy)

    with HiveSql(ends[1]) as sql:
        print(sql.execute("REPL STATUS shop"), found := sql.execute("SELECT ROW__ID, * FROM shop.orders"))
    assert found == expected

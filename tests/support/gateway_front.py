"""A gateway in this process, before real metastores, and engines that believe it to be one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.gateway.config import config_of
from airflow_hive_federation.gateway.serving import Serving, start
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.runtime.java import spark_java_home

_SPARK = """
import sys
from pyspark.sql import SparkSession

uri, home, *statements = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]").enableHiveSupport()
    .config("spark.hadoop.hive.metastore.uris", uri)
    .config("spark.ui.enabled", "false").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1").config("spark.sql.warehouse.dir", home + "/warehouse")
    .config("spark.hadoop.hive.exec.dynamic.partition.mode", "nonstrict")
    .config("spark.sql.shuffle.partitions", "1").getOrCreate()
)
for statement in statements:
    print("ROWS", [tuple(row) for row in spark.sql(statement).collect()], flush=True)
spark.stop()
"""


def _nobody(connection: str) -> MetastoreSettings:
    raise AssertionError(connection)


@contextmanager
def gateway(config: Mapping[str, Any]) -> Iterator[Serving]:
    """Serve a configuration, at a free port."""
    serving = start(config_of({"thrift": {"port": 0}, **config}), _nobody)
    try:
        yield serving
    finally:
        serving.stop()


def work_through(upstream: Mapping[str, Any], database: str) -> None:
    """Write and read at a metastore through a gateway whose configuration describes it."""
    with (
        gateway({"upstream": upstream}) as serving,
        MetastoreClient(MetastoreSettings(uris=(serving.fronts[0].uri,), user="tester")) as client,
    ):
        # More than a piece of an answer.
        texts = {str(number): "ü" * 3_000 for number in range(50)}
        client.create_database(types.Database(name=database, parameters=texts))
        try:
            assert client.get_database(database).parameters == texts
            assert database in client.list_databases()
            with pytest.raises(NoSuchObjectError):
                client.get_table(database, "nothing")
        finally:
            client.drop_database(database, delete_data=True)


@dataclass(frozen=True)
class Behind:
    """An embedded metastore as Hive's SQL engine is to see it: through a gateway."""

    metastore: EmbeddedMetastore
    uri: str
    directory: Path

    @property
    def jdbc_url(self) -> str:
        return self.metastore.jdbc_url

    @property
    def jdbc_password(self) -> str:
        return self.metastore.jdbc_password


def rows_of_spark(uri: str, home: Path, statements: list[str]) -> list[str]:
    """Run statements in a Spark of their own, with its built-in client of Hive 2.3; return their rows."""
    home.mkdir(parents=True, exist_ok=True)
    script = home / "statements.py"
    script.write_text(_SPARK, encoding="utf-8")
    environment = {
        **os.environ,
        "JAVA_HOME": str(spark_java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, str(script), uri, str(home), *statements],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return [line.removeprefix("ROWS ") for line in done.stdout.splitlines() if line.startswith("ROWS ")]

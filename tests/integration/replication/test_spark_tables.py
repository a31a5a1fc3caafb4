"""Tables and views that Spark has made: Spark and Hive read the replica, and never the source's directories.

Spark speaks to both metastores of Hive 4.2 itself, by Hive's own client of that version.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hive_federation.embedded.jars import sql_jars
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.replica.position import loaded_dump
from airflow_hive_federation.runtime.java import find_java, spark_java_home
from tests.support.both_readers import read_both_ways
from tests.support.incrementing import Cycles, cycles
from tests.support.verified import differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Answers statements, one JSON line each, in a session on the metastore that the statement names.
SCRIPT = """
import json, sys
from pyspark.sql import SparkSession

jars, warehouse = sys.argv[1:]
session, at = None, None
for line in sys.stdin:
    uri, statement = json.loads(line)
    if uri != at:
        if session:
            session.stop()
        session, at = (
            SparkSession.builder.master("local[1]").enableHiveSupport()
            .config("spark.sql.hive.metastore.version", "4.1.0")
            .config("spark.sql.hive.metastore.jars", "path")
            .config("spark.sql.hive.metastore.jars.path", jars)
            .config("spark.hadoop.hive.metastore.uris", uri).config("spark.sql.warehouse.dir", warehouse)
            .config("spark.ui.enabled", "false").config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1").config("spark.sql.shuffle.partitions", "1")
            .config("spark.ui.showConsoleProgress", "false").getOrCreate()
        ), uri
    try:
        answer = [list(map(str, row)) for row in session.sql(statement).collect()]
    except Exception as error:
        answer = str(error)[:2000]
    print("answer " + json.dumps(answer), flush=True)
"""


class SparkSql:
    """A Spark with Hive support in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def execute(self, metastore: EmbeddedMetastore, statement: str) -> list[list[str]]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([metastore.uri, statement]) + "\n")
        self._process.stdin.flush()
        line = next((line for line in self._process.stdout if line.startswith("answer ")), "answer null")
        answer = json.loads(line.removeprefix("answer "))
        assert isinstance(answer, list), f"{statement}: {answer}"
        return sorted(answer)


@contextmanager
def spark_sql(home: Path) -> Iterator[SparkSql]:
    java = find_java()
    jars = ",".join(f"file:{jar}" for jar in sql_jars(java))
    environment = {
        **os.environ,
        "JAVA_HOME": str(spark_java_home({"JAVA_HOME": str(java.home)})),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with (
        (home / "spark.log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, jars, str(home / "warehouse")],
            cwd=home,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        yield SparkSql(process)
        assert process.stdin
        process.stdin.close()


def made_by_spark(root: Path) -> tuple[str, ...]:
    return (
        f"CREATE DATABASE sparks LOCATION 'file:{root}/sparks.db'",
        "CREATE TABLE sparks.as_parquet (id int, s string) USING parquet",
        "INSERT INTO sparks.as_parquet VALUES (1, 'a'), (2, 'b')",
        "ANALYZE TABLE sparks.as_parquet COMPUTE STATISTICS FOR ALL COLUMNS",
        # Hive cannot read these: their columns are in Spark's parameters only.
        "CREATE TABLE sparks.as_csv (id int, s string) USING csv OPTIONS (header 'true')",
        "INSERT INTO sparks.as_csv VALUES (1, 'a')",
        f"""CREATE TABLE sparks.as_json (id int, p string) USING json PARTITIONED BY (p)
        LOCATION 'file:{root}/far away/json'""",
        "INSERT INTO sparks.as_json VALUES (1, 'x y'), (2, 'z')",
        f"CREATE TABLE sparks.as_text (line string) USING text LOCATION 'file:{root}/far away/text'",
        "INSERT INTO sparks.as_text VALUES ('one'), ('two')",
        """CREATE TABLE sparks.bucketed (id int, s string) USING orc
        CLUSTERED BY (id) SORTED BY (s) INTO 2 BUCKETS""",
        "INSERT INTO sparks.bucketed VALUES (1, 'a'), (2, 'b')",
        "CREATE TABLE sparks.parted (sAx struct<Ab:int>, p int) USING parquet PARTITIONED BY (p)",
        "INSERT INTO sparks.parted VALUES (struct(3), 1), (struct(4), 2)",
        "CREATE TABLE sparks.of_hive (id int) STORED AS PARQUET",
        "INSERT INTO sparks.of_hive VALUES (7)",
        "USE sparks",
        """CREATE VIEW sparks.seen AS SELECT a.id, as_csv.s, sparks.as_parquet.id i
        FROM as_csv JOIN sparks.as_parquet USING (id) JOIN (SELECT 1 id) a USING (id)""",
    )


#: By whom each is read. Spark alone reads what Hive has no columns of.
READ = {
    "as_parquet": ("spark", "hive"),
    "as_csv": ("spark",),
    "as_json": ("spark",),
    "as_text": ("spark",),
    "bucketed": ("spark", "hive"),
    "parted": ("spark", "hive"),
    "of_hive": ("spark", "hive"),
    "seen": ("spark",),
}
NAMES = {"as_csv": "komma"}


@pytest.mark.slow
def test_spark_and_hive_read_the_replica(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    engines = (hive_sql_source, hive_sql_target)
    root = tmp_path / "source"
    with (
        cycles(source, target, engines, tmp_path, source_database="sparks", table_names=NAMES) as site,
        spark_sql(tmp_path) as engine,
    ):
        for statement in made_by_spark(root):
            engine.execute(source, statement)
        # Tables of formats that keep names of their own files.
        delta = root / "sparks.db" / "plain_over_delta"
        (delta / "_delta_log").mkdir(parents=True)
        for statement in (
            f"CREATE EXTERNAL TABLE sparks.plain_over_delta (id int) LOCATION 'file:{delta}'",
            """CREATE EXTERNAL TABLE sparks.of_delta (id int)
            TBLPROPERTIES ('spark.sql.sources.provider'='delta')""",
        ):
            hive_sql_source.execute(statement)
        site.bootstrap()
        assert {name: why.partition(";")[0] for name, why in skipped(site).items()} == {
            "plain_over_delta": f"its directory file:{delta} has _delta_log: "
            "Delta Lake keeps names of its files there",
            "of_delta": "it is a table of Spark's data source delta, which may name its own files",
        }
        engine.execute(source, "INSERT INTO sparks.as_json VALUES (3, 'new')")
        engine.execute(source, "INSERT INTO sparks.as_csv VALUES (2, 'new')")
        site.cycle()
        assert site.dump().idle
        assert differences(site, spark, read_both_ways) == []
        expected = {
            (name, reader): read(engine, hive_sql_source, reader, source, f"sparks.{name}")
            for name, readers in READ.items()
            for reader in readers
        }
        assert all(expected.values())
        assert len(expected["as_json", "spark"]) == 3
        # What still named the source's directories would find nothing in them.
        shutil.rmtree(root)
        for (name, reader), rows in expected.items():
            there = f"sparks_copy.{NAMES.get(name, name)}"
            assert read(engine, hive_sql_target, reader, target, there) == rows, (name, reader)
        assert named_places(site) == []


def read(spark: SparkSql, hive: HiveSql, reader: str, metastore: EmbeddedMetastore, table: str) -> list[Any]:
    statement = f"SELECT * FROM {table}"
    return (
        spark.execute(metastore, statement)
        if reader == "spark"
        else sorted(hive.execute(statement), key=repr)
    )


def skipped(site: Cycles) -> dict[str, str]:
    with site.target.client() as client:
        return dict(DumpDirectory(loaded_dump(client, site.policy)).manifest().skipped)


def named_places(site: Cycles) -> list[str]:
    """Tables and partitions of the target in whose definition a place of the source is left."""
    with site.target.client() as client:
        tables: list[Any] = list(client.get_tables("sparks_copy", client.list_tables("sparks_copy")))
        described = [(table.tableName, table) for table in tables]
        for table in tables:
            if table.partitionKeys:
                partitions = client.iter_partitions("sparks_copy", table.tableName)
                described += [
                    (f"{table.tableName} {partition.values}", partition) for partition in partitions
                ]
    external = site.policy.external_base or ""
    return [
        name
        for name, made in described
        for value in (made.sd.location, *(made.sd.serdeInfo.parameters or {}).values())
        if "/" in (value or "") and not value.startswith(external)
    ]

"""A guarded session refuses transactional tables by every way but ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from airflow_hive_federation.runtime.java import spark_java_home
from airflow_hive_federation.tables.read.guard import guarded
from airflow_hive_federation.tables.read.reader import read_table
from tests.support.golden_tables import GOLDEN, GoldenTable

REFUSED = "transactional Hive table. Remedy: "


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """A guarded session of the application the tests share."""
    return guarded(spark)


@pytest.mark.parametrize(
    "path", ["acid_changed", "acid_merged", "acid_changed/delta_0000001_0000001_0000", "insert_only"]
)
def test_directories_are_not_read(path: str, session: SparkSession) -> None:
    location = str(GOLDEN / path)
    for read in (
        lambda: session.read.schema("id int").orc(location),
        lambda: session.read.schema("id int").format("orc").load(location),
        lambda: session.read.option("recursiveFileLookup", "true").schema("id int").parquet(location),
    ):
        with pytest.raises(IllegalArgumentException, match=REFUSED):
            read()


def test_directories_are_not_written(session: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "acid_changed"
    shutil.copytree(GOLDEN / "acid_changed", table)
    before = sorted(table.rglob("*"))
    rows = session.range(3)
    for write in (
        lambda: rows.write.mode("append").orc(str(table)),
        lambda: rows.write.mode("overwrite").parquet(str(table)),
        lambda: rows.write.mode("overwrite").text(str(table / "delta_0000001_0000001_0000")),
        lambda: session.sql(f"insert overwrite directory '{table}' using orc select 1 id"),
    ):
        with pytest.raises(IllegalArgumentException, match=REFUSED):
            write()
    assert sorted(table.rglob("*")) == before


def test_everything_else_works(session: SparkSession, spark: SparkSession, tmp_path: Path) -> None:
    golden = GoldenTable("acid_changed")
    ours = read_table(session, golden, "golden.acid_changed", snapshot=golden.snapshot)  # type: ignore[arg-type]
    assert ours.count() == len(golden.expected)
    ours.createOrReplaceTempView("guarded_rows")
    assert session.sql("select count(*) from guarded_rows").first() == (len(golden.expected),)
    ours.write.orc(str(tmp_path / "copy"))
    assert session.read.orc(str(tmp_path / "copy")).count() == len(golden.expected)
    # Sessions that were there before are what they were.
    assert spark.read.schema("id int").orc(str(GOLDEN / "insert_only" / "part=2")).count() >= 0


CATALOG = """
import sys
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession
from airflow_hive_federation.tables.read.guard import guarded

database = sys.argv[1] + "/db"
first = (
    SparkSession.builder.master("local[1]").enableHiveSupport()
    .config("spark.ui.enabled", "false").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1").config("spark.sql.warehouse.dir", sys.argv[1] + "/warehouse")
    .config("spark.hadoop.javax.jdo.option.ConnectionURL", f"jdbc:derby:;databaseName={database};create=true")
    .getOrCreate()
)
first.sql("create table plain (id int) stored as orc")
# Spark's own metastore of Hive 2.3 wants it bucketed.
first.sql("create table acid (id int) clustered by (id) into 1 buckets stored as orc")
first.sql("alter table acid set tblproperties ('transactional' = 'true')")
first.sql("create view over_acid as select id from acid")
spark = guarded(first)
rows = spark.range(1).selectExpr("cast(id as int) id")
rows.write.parquet(sys.argv[1] + "/load")
attempts = {
    "select": lambda: spark.sql("select * from acid"),
    "join": lambda: spark.sql("select * from plain join (select * from default.acid) a using (id)"),
    "view": lambda: spark.sql("select * from over_acid"),
    "table": lambda: spark.table("acid"),
    "insert": lambda: spark.sql("insert into acid values (1)"),
    "overwrite": lambda: spark.sql("insert overwrite table acid select 1"),
    "insertInto": lambda: rows.write.insertInto("acid"),
    "saveAsTable overwrite": lambda: rows.write.mode("overwrite").saveAsTable("acid"),
    "subquery": lambda: spark.sql("select * from plain where id in (select id from acid)"),
    "with": lambda: spark.sql("with a as (select * from acid) select count(*) from a"),
    "create as": lambda: spark.sql("create table copied using parquet as select * from acid"),
    "create as hive": lambda: spark.sql("create table copied stored as textfile as select * from acid"),
    "truncate": lambda: spark.sql("truncate table acid"),
    "load": lambda: spark.sql(f"load data local inpath '{sys.argv[1]}/load' into table acid"),
    "analyze": lambda: spark.sql("analyze table acid compute statistics"),
}
for name, attempt in attempts.items():
    try:
        attempt()
    except IllegalArgumentException as error:
        assert "default.acid is a transactional Hive table. Remedy: " in str(error), (name, error)
    else:
        raise SystemExit(f"{name} was let through")
rows.write.insertInto("plain")
assert spark.table("plain").count() == 1
assert first.table("acid").count() == 0
for local in ("", "local "):
    try:
        spark.sql(f"insert overwrite {local}directory '{sys.argv[1]}/files' stored as textfile select 1")
    except IllegalArgumentException as error:
        assert "files is a directory of a transactional Hive table. Remedy: " in str(error), error
    else:
        raise SystemExit(f"insert overwrite {local}directory was let through")
spark.sql(f"insert overwrite directory '{sys.argv[1]}/others' stored as textfile select 1")
print("all refused")
"""


@pytest.mark.slow
def test_tables_of_the_catalog(tmp_path: Path) -> None:
    environment = {**os.environ, "JAVA_HOME": str(spark_java_home()), "PYSPARK_PYTHON": sys.executable}
    delta = tmp_path / "files" / "delta_0000001_0000001_0000"
    delta.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", CATALOG, str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout.strip().endswith("all refused"), done.stdout + done.stderr[-4000:]
    assert delta.is_dir()

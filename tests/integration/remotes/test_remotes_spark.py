"""Real Spark on links: it joins tables of three metastores, and neither misreads nor writes what it must not.

Spark's own client speaks to a Hive 2.3 metastore: that is the local one; Hive 4.2 and Hive 3.1 are remotes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.definitions import UNREADABLE
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.runtime.java import spark_java_home
from tests.support.text_tables import storage

FAR, OLD, NEAR = "remote_spark_far", "remote_spark_old", "remote_spark_near"

SCRIPT = """
import sys
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession
from airflow_hive_federation.tables.read.guard import guarded

uri, home, near, unreadable = sys.argv[1:]
plain = (
    SparkSession.builder.master("local[1]").enableHiveSupport()
    .config("spark.hadoop.hive.metastore.uris", uri)
    .config("spark.ui.enabled", "false").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1").config("spark.sql.warehouse.dir", home + "/warehouse")
    .config("spark.sql.shuffle.partitions", "1").getOrCreate()
)
plain.sql(f"create table {near}.own (id int, note string) stored as orc")
plain.sql(f"insert into {near}.own values (1, 'ours'), (2, 'also')")
joined = f'''select o.note, c.name, s.name, p.p from {near}.own o join far.city c on o.id = c.id
    join old.street s on s.id = c.id join far.parted p on p.id = c.id where p.p > 'a' '''
print(plain.sql(joined).collect())
assert [tuple(row) for row in plain.sql(joined).collect()] == [("also", "Wien", "Ring", "b")]
for name in ("full_acid", "insert_only"):
    assert plain.table(f"far.{name}").columns == ["id"]
    for query in ("select *", "select count(*)", "select id + 1"):
        try:
            found = plain.sql(f"{query} from far.{name}").collect()
        except Exception as error:
            assert unreadable in str(error), error
        else:
            raise SystemExit(f"{query} from {name}: {found}")

def writes(spark):
    rows = spark.sql("select cast(9 as int) id, 'new' name")
    for name in ("city", "as_orc"):
        yield f"insert into {name}", lambda: spark.sql(f"insert into far.{name} values (9, 'new')")
        yield f"overwrite {name}", lambda: spark.sql(f"insert overwrite table far.{name} select 9, 'new'")
        yield f"insertInto {name}", lambda: rows.write.insertInto(f"far.{name}")
        yield f"truncate {name}", lambda: spark.sql(f"truncate table far.{name}")
    yield "partition", lambda: spark.sql("insert into far.parted partition (p = 'a') values (9)")
    yield "dynamic", lambda: spark.sql("insert overwrite table far.parted select 9, 'a'")

guards = "stands for a remote table. Remedy: Remotes are for reading"
by_link = "A LINK TO A REMOTE TABLE IS FOR READING"
spark = guarded(plain)
assert spark.table("far.as_orc").count() == 2
open(home + "/in", "w").write("9,new")
for what, attempt in [
    *writes(spark),
    ("load", lambda: spark.sql(f"load data local inpath '{home}/in' into table far.city")),
    ("append", lambda: spark.table("far.city").write.mode("append").format("hive").saveAsTable("far.as_orc")),
]:
    try:
        attempt()
    except Exception as error:
        # Spark refuses some by the link itself, before the guard is asked.
        by_guard = isinstance(error, IllegalArgumentException) and guards in str(error)
        assert by_guard or by_link in str(error), (what, error)
    else:
        raise SystemExit(f"{what} was let through")

# A session that is not guarded, and has no writers of its own for Hive's tables.
plain.conf.set("spark.sql.hive.convertInsertingUnpartitionedTable", "false")
plain.conf.set("spark.sql.hive.convertInsertingPartitionedTable", "false")
plain.conf.set("hive.exec.dynamic.partition.mode", "nonstrict")
for what, attempt in writes(plain):
    try:
        attempt()
    except Exception as error:
        print(what, type(error), str(error)[:200].splitlines()[0])
    else:
        raise SystemExit(f"{what} was let through without the guard")
assert plain.table("far.as_orc").count() == plain.table("far.city").count() == 2
plain.sql(f"drop table {near}.own")
print("all as it should be")
"""


@pytest.mark.slow
def test_spark_on_links(
    hive_2: str, hive_3: str, source: EmbeddedMetastore, hive_sql_source: HiveSql, tmp_path: Path
) -> None:
    acid = "STORED AS ORC TBLPROPERTIES ('transactional'='true'"
    for statement in (
        f"CREATE DATABASE {FAR}",
        f"CREATE EXTERNAL TABLE {FAR}.city (id INT, name STRING)",
        f"INSERT INTO {FAR}.city VALUES (1, 'Berlin'), (2, 'Wien')",
        f"CREATE EXTERNAL TABLE {FAR}.as_orc (id INT, name STRING) STORED AS ORC",
        f"INSERT INTO {FAR}.as_orc VALUES (1, 'a'), (2, 'b')",
        f"CREATE EXTERNAL TABLE {FAR}.parted (id INT) PARTITIONED BY (p STRING) STORED AS ORC",
        f"INSERT INTO {FAR}.parted VALUES (1, 'a'), (2, 'b')",
        f"CREATE TABLE {FAR}.full_acid (id INT) {acid})",
        f"INSERT INTO {FAR}.full_acid VALUES (1), (2)",
        f"DELETE FROM {FAR}.full_acid WHERE id = 1",
        f"CREATE TABLE {FAR}.insert_only (id INT) {acid}, 'transactional_properties'='insert_only')",
        f"INSERT INTO {FAR}.insert_only VALUES (1), (2)",
    ):
        hive_sql_source.execute(statement)
    street = tmp_path / "street"
    street.mkdir()
    (street / "data").write_text("1,Allee\n2,Ring\n", encoding="utf-8")
    with MetastoreClient(MetastoreSettings(uris=(hive_3,))) as old:
        old.create_database(types.Database(name=OLD))
        old.create_table(
            types.Table(
                dbName=OLD,
                tableName="street",
                owner="root",
                sd=storage(f"file:{street}"),
                partitionKeys=[],
                parameters={"EXTERNAL": "TRUE"},
                tableType="EXTERNAL_TABLE",
            )
        )
    with MetastoreClient(MetastoreSettings(uris=(hive_2,))) as near:
        near.create_database(types.Database(name=NEAR, locationUri=f"file:{tmp_path}/near"))
    with Remotes(MetastoreSettings(uris=(hive_2,))) as remotes:
        remotes.run(f"CREATE REMOTE DATABASE far CONNECTED TO {FAR} 'hive.metastore.uris' = '{source.uri}'")
        remotes.run(f"CREATE REMOTE DATABASE old CONNECTED TO {OLD} 'hive.metastore.uris' = '{hive_3}'")
        files = listing(source)
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, hive_2, str(tmp_path), NEAR, UNREADABLE],
            cwd=tmp_path,
            env={**os.environ, "JAVA_HOME": str(spark_java_home()), "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.stdout.strip().endswith("all as it should be"), done.stdout + done.stderr[-4000:]
        print(done.stdout)
        assert listing(source) == files
        remotes.run("DROP REMOTE DATABASE far; DROP REMOTE DATABASE old")
    hive_sql_source.execute(f"DROP DATABASE {FAR} CASCADE")


def listing(metastore: EmbeddedMetastore) -> list[tuple[str, int]]:
    """The files of the remote database, with their sizes."""
    roots = (metastore.external_warehouse, metastore.warehouse)
    paths = (path for root in roots for path in (root / f"{FAR}.db").rglob("*") if path.is_file())
    return sorted((str(path), path.stat().st_size) for path in paths)

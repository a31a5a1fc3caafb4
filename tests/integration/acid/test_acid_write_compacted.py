"""Hive's own worker compacts our tables: the same rows keep the same identities."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.tables.read.reader import read_table
from airflow_hive_federation.tables.write.statements import append, delete, merge, update
from tests.support.hive_beside_cleaner import HiveBesideCleaner
from tests.support.hives_worker import hives_worker

DATABASE = "written"
ACID = "stored as orc tblproperties ('transactional'='true', 'no_auto_compaction'='true')"
TYPED = (
    "id int, b boolean, t tinyint, s smallint, l bigint, f float, d double, e decimal(38,10), x string, "
    "c char(5), v varchar(4), y binary, day date, at timestamp, a array<struct<a:int,b:varchar(2)>>, "
    "m map<string,char(2)>"
)
ROWS = """
select cast(id as int) id, id % 2 = 0 b, cast(id % 100 as tinyint) t, cast(-id as smallint) s,
  id * 1000000007 l, cast(id as float) / 3 f, if(id = 5, double('NaN'), id / 7) d,
  cast(id as decimal(38,10)) / 3 e, if(id % 3 = 0, null, concat('ä日😀', id)) x, cast(id as string) c,
  'äöüxyz' v, encode(cast(id as string), 'utf-8') y, date_add(date'1600-01-01', cast(id * 100 as int)) day,
  timestamp_millis(id * 10000000001 - 100000000000) at,
  array(named_struct('a', cast(id as int), 'b', 'xyz'), null) a, map('k', 'v', cast(id as string), null) m
from range(2000)
"""
TABLES = {
    "typed": (f"({TYPED}) clustered by (id) into 3 buckets", ["*"]),
    "parted": ("(id int, x string) partitioned by (t tinyint)", ["id", "x", "cast(id % 2 as tinyint) t"]),
}


@pytest.fixture(scope="module")
def hive(source: EmbeddedMetastore) -> Iterator[HiveSql]:
    with HiveBesideCleaner(source) as hive:
        hive.execute(f"create database {DATABASE}")
        yield hive


@pytest.mark.slow
def test_hives_worker_compacts_what_we_write(
    spark: SparkSession, client: MetastoreClient, hive: HiveSql, source: EmbeddedMetastore
) -> None:
    for name in TABLES:
        write(spark, client, hive, name)
    before = {name: seen(spark, client, hive, name) for name in TABLES}
    wanted = {
        ("typed", None): types.CompactionType.MINOR,
        ("parted", "t=0"): types.CompactionType.MINOR,
        ("parted", "t=1"): types.CompactionType.MAJOR,
    }
    for (name, partition), kind in wanted.items():
        where = f"partition ({partition})" if partition else ""
        text = "major" if kind == types.CompactionType.MAJOR else "minor"
        hive.execute(f"alter table {DATABASE}.{name} {where} compact '{text}'")
    hives_worker(source)
    compacted = {
        (compact.tablename, compact.partitionname): compact.type
        for compact in client.call("show_compact", types.ShowCompactRequest()).compacts
        if compact.dbname == DATABASE and compact.state in {"ready for cleaning", "succeeded"}
    }
    assert compacted == wanted
    for name in TABLES:
        assert seen(spark, client, hive, name) == before[name]
        hive.execute(f"update {DATABASE}.{name} set x = 'by hive' where id = 6")
        hive.execute(f"delete from {DATABASE}.{name} where id = 7")
        chosen = read_table(spark, client, f"{DATABASE}.{name}").where("x = 'by hive' or id = 7")
        assert [row.id for row in chosen.collect()] == [6]


def write(spark: SparkSession, client: MetastoreClient, hive: HiveSql, name: str) -> None:
    """Every statement of ours, some of them over what earlier ones wrote."""
    table = f"{DATABASE}.{name}"
    definition, columns = TABLES[name]
    hive.execute(f"create table {table} {definition} {ACID}")
    rows = spark.sql(ROWS)
    for part in range(3):
        append(spark, client, table, rows.where(f"id % 3 = {part}").selectExpr(*columns))
    now = read_table(spark, client, table, row_ids=True)
    delete(spark, client, table, now.where("id % 10 = 1"))
    update(spark, client, table, now.where("id % 10 = 2").withColumn("x", fn.lit("changed")))
    now = read_table(spark, client, table, row_ids=True)
    merge(
        spark,
        client,
        table,
        deletes=now.where("id % 10 = 3"),
        updates=now.where("x = 'changed' and id < 1000").withColumn("x", fn.lit("again")),
        inserts=rows.where("id < 10").withColumn("id", fn.expr("id + 5000")).selectExpr(*columns),
    )


def seen(spark: SparkSession, client: MetastoreClient, hive: HiveSql, name: str) -> list[object]:
    """Return the rows of Hive, vectorized and not, and ours, with their identities."""
    answers: list[object] = []
    for vectorized in ("true", "false"):
        hive.set("hive.vectorized.execution.enabled", vectorized)
        answers.append(hive.execute(f"select ROW__ID, * from {DATABASE}.{name} order by id"))
    ours = read_table(spark, client, f"{DATABASE}.{name}", row_ids=True)
    return [*answers, sorted(map(repr, ours.collect()))]

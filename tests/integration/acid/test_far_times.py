"""Timestamps beyond the reach of nanoseconds in ORC, of Hive and of ours, of both calendars, in one table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql, Row
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.tables.read.reader import read_table
from airflow_hive_federation.tables.write.statements import append
from tests.support.hive_beside_cleaner import HiveBesideCleaner

DATABASE = "far_times"
COLUMNS = (
    "id int, t timestamp, d date, a array<timestamp>, s struct<t:timestamp,n:int>, m map<string,timestamp>"
)
TIMES = [
    "0002-01-01 00:00:00",
    "1500-02-28 23:59:59.5",
    "1500-03-01 12:00:05.000000001",
    "1582-10-04 12:00:00",
    "1582-10-15 00:00:00",
    "1969-12-31 23:59:58.123456789",
    "2026-11-23 10:00:00.123456789",
    "2300-01-01 00:00:00.25",
    "9999-12-31 23:59:59.999999999",
    "9999-12-31 00:00:00",
]
# Spark has microseconds.
OURS = [f"{time[:26]}" for time in TIMES]


@pytest.fixture(scope="module")
def hive(source: EmbeddedMetastore) -> Iterator[HiveSql]:
    with HiveBesideCleaner(source) as hive:
        hive.execute(f"create database {DATABASE}")
        yield hive


@pytest.fixture(params=["acid", "insert_only", "was plain"])
def table(request: pytest.FixtureRequest, hive: HiveSql) -> str:
    """A table with rows of Hive's in two files, of which some are deleted if they can be."""
    name = f"{DATABASE}.{request.param.replace(' ', '_')}"
    acid = {
        "acid": ", 'transactional'='true'",
        "was plain": ", 'transactional'='false', 'EXTERNAL'='FALSE'",
    }.get(request.param, ", 'transactional'='true', 'transactional_properties'='insert_only'")
    hive.execute(
        f"create table {name} ({COLUMNS}) stored as orc tblproperties ('no_auto_compaction'='true'{acid})"
    )
    insert(hive, name, 0)
    if request.param == "was plain":
        hive.execute(f"alter table {name} set tblproperties ('transactional'='true', 'EXTERNAL'='FALSE')")
    insert(hive, name, 100)
    if request.param != "insert_only":
        hive.execute(f"delete from {name} where id in (1, 103)")
    return name


def insert(hive: HiveSql, table: str, first: int) -> None:
    values = " union all ".join(
        f"select {first + i} id, timestamp '{text}' t, date '{text[:10]}' d" for i, text in enumerate(TIMES)
    )
    inside = "array(t, null, t), named_struct('t', t, 'n', id), map('k', t, 'l', null)"
    hive.execute(f"insert into {table} select id, t, d, {inside} from ({values}) v")
    hive.execute(f"insert into {table} (id) values ({first + 50})")


def theirs(hive: HiveSql, table: str) -> list[Row]:
    """All rows by both of Hive's readers, which must agree."""
    answers = []
    row_id = "" if table.endswith("insert_only") else "ROW__ID, "
    for vectorized in ("false", "true"):
        hive.set("hive.vectorized.execution.enabled", vectorized)
        answers.append(sorted(hive.execute(f"select {row_id}* from {table}"), key=repr))
    assert answers[0] == answers[1]
    return answers[0]


def ours(spark: SparkSession, client: MetastoreClient, table: str) -> list[Row]:
    rows = read_table(spark, client, table, row_ids=not table.endswith("insert_only"))
    return sorted((tuple(row) for row in shown(rows).collect()), key=repr)


def shown(rows: DataFrame) -> DataFrame:
    texts = [f"cast({expression} as string)" for expression in ("t", "d", "a[0]", "s.t", "m['k']")]
    row_id = [f"ROW__ID.{field}" for field in ("writeid", "bucketid", "rowid") if "ROW__ID" in rows.columns]
    return rows.selectExpr(*row_id, "id", "size(a)", "map_keys(m)", *texts)


def test_compaction(table: str, spark: SparkSession, client: MetastoreClient, hive: HiveSql) -> None:
    """Hive's files are hybrid, ours proleptic; so is what is made of both."""
    before, read = theirs(hive, table), ours(spark, client, table)
    by_id = {row[-8]: row for row in read}
    assert [by_id[100 + i][-5] for i in (4, 6, 8, 9)] == [OURS[i].removesuffix(".0") for i in (4, 6, 8, 9)]
    (report,) = compact_table(client.settings, table, CompactionKind.MINOR, in_threads(2))
    assert report.state == "compacted", report
    assert (theirs(hive, table), ours(spark, client, table)) == (before, read)
    rows = read_table(spark, client, table).where("id >= 100").withColumn("id", fn.expr("id + 1000"))
    append(spark, client, table, rows.coalesce(1))
    before, read = theirs(hive, table), ours(spark, client, table)
    (report,) = compact_table(client.settings, table, CompactionKind.MAJOR, in_threads(2))
    assert report.state == "compacted", report
    assert (theirs(hive, table), ours(spark, client, table)) == (before, read)
    for text in (TIMES[0], TIMES[6], TIMES[9]):
        answer = hive.execute(f"select id, t from {table} where t = timestamp '{text}' order by id")
        assert {row[1] for row in answer} == {text}, text
        answer = hive.execute(f"select id from {table} where d = date '{text[:10]}' order by id")
        assert answer, text
    if not table.endswith("insert_only"):
        hive.execute(f"update {table} set t = timestamp '9999-12-31 00:00:00' where id = 105")
        (report,) = compact_table(client.settings, table, CompactionKind.MAJOR, in_threads(2))
        assert report.state == "compacted", report
        assert len(theirs(hive, table)) == len(before)

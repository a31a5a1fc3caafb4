"""A timestamp is what the clock shows, wherever Spark runs; Hive runs in UTC."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import SparkJobError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.tables.read.reader import read_table
from airflow_hive_federation.tables.write.statements import append, update
from tests.support.hive_beside_cleaner import HiveBesideCleaner

ACID = "stored as orc tblproperties ('transactional'='true')"
ONLY = "stored as orc tblproperties ('transactional'='true', 'transactional_properties'='insert_only')"
TEXT = "stored as textfile tblproperties ('transactional'='true', 'transactional_properties'='insert_only')"
TIMES = [
    "0001-01-01 09:00:00",
    "1500-02-28 12:00:00",
    "1582-10-15 12:00:00",
    "1883-11-18 11:00:00",
    "1940-06-02 12:00:00",
    "1969-12-31 23:59:57.999999",
    "2024-07-01 02:30:00.000001",
    "2024-10-27 02:30:00",
    "2024-11-03 01:30:00",
    "2300-01-01 00:00:00.25",
    "9999-12-31 23:59:59.999999",
]
# Shown as another one by Java's ORC reader; as what; and what is near them.
DOUBTFUL = {
    "Asia/Shanghai": [
        ("0001-01-01 00:00:00", "0002-01-01 00:00:00", "0002-01-01 09:00:00"),
        ("1582-10-15 07:00:00", "1582-10-25 07:00:00", "1582-10-24 23:59:59"),
    ],
    "America/Los_Angeles": [("1500-02-28 23:59:59", "1500-03-01 23:59:59", "1500-03-02 00:00:00")],
}


@pytest.fixture(scope="module")
def hive(source: EmbeddedMetastore) -> Iterator[HiveSql]:
    with HiveBesideCleaner(source) as hive:
        hive.execute("create database time_zones")
        yield hive


@pytest.fixture
def zones(spark: SparkSession) -> Iterator[Any]:
    """Yield a function that sets the time zone of the JVM and of the session."""
    zone_class = spark._jvm.java.util.TimeZone
    key = "spark.sql.session.timeZone"
    before = zone_class.getDefault(), spark.conf.get(key)

    def live_in(zone: str) -> None:
        zone_class.setDefault(zone_class.getTimeZone(zone))
        spark.conf.set(key, zone)

    yield live_in
    zone_class.setDefault(before[0])
    spark.conf.set(key, str(before[1]))


def _rows(spark: SparkSession, texts: list[str]) -> DataFrame:
    return spark.createDataFrame(list(enumerate(texts)), "id int, x string").selectExpr(
        "id",
        "cast(x as timestamp) t",
        "array(null, cast(x as timestamp)) a",
        "map(1, cast(x as timestamp)) m",
        "named_struct('t', cast(x as timestamp), 'n', 1) s",
    )


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/Los_Angeles"])
@pytest.mark.parametrize("kind", [ACID, ONLY, TEXT], ids=["acid", "insert_only", "text"])
def test_clocks(
    spark: SparkSession, client: MetastoreClient, hive: HiveSql, zones: Any, kind: str, zone: str
) -> None:
    table = f"time_zones.clocks_{[ACID, ONLY, TEXT].index(kind)}_{zone.partition('/')[0]}".lower()
    hive.execute(f"create table {table} (id int, t timestamp, d date) {kind}")
    values = ", ".join(f"({i}, timestamp'{time}', date'{time[:10]}')" for i, time in enumerate(TIMES))
    hive.execute(f"insert into {table} values {values}")
    zones(zone)
    ours = spark.createDataFrame(list(enumerate(TIMES, 100)), "id int, x string")
    append(
        spark,
        client,
        table,
        ours.selectExpr("id", "cast(x as timestamp) t", "cast(substr(x, 1, 10) as date) d"),
    )
    wanted = [(first + i, time, time[:10]) for first in (0, 100) for i, time in enumerate(TIMES)]
    for compacted in (False, True):
        if compacted:
            (report,) = compact_table(client.settings, table, CompactionKind.MAJOR, in_threads(1))
            assert report.state == "compacted", report
        rows = read_table(spark, client, table).selectExpr("id", "string(t)", "string(d)")
        assert sorted(map(tuple, rows.collect())) == wanted
        answer = hive.execute(f"select id, t, d from {table} order by id")
        assert [(int(str(row[0])), str(row[1]).removesuffix(".0"), row[2]) for row in answer] == wanted


@pytest.mark.parametrize("zone", DOUBTFUL)
@pytest.mark.parametrize("kind", [ACID, ONLY], ids=["acid", "insert_only"])
def test_what_javas_orc_reader_mistakes(
    spark: SparkSession, client: MetastoreClient, hive: HiveSql, zones: Any, kind: str, zone: str
) -> None:
    table = f"time_zones.doubtful_{[ACID, ONLY].index(kind)}_{zone.partition('/')[0]}".lower()
    columns = "id int, t timestamp, a array<timestamp>, m map<int,timestamp>, s struct<t:timestamp,n:int>"
    hive.execute(f"create table {table} ({columns}, p int) {kind}")
    zones(zone)
    for part, (meant, shown, clear) in enumerate(DOUBTFUL[zone]):
        append(spark, client, table, _rows(spark, [meant, shown, clear]).selectExpr("*", f"{part} p"))
        texts = "id", "string(t)", "string(a[1])", "string(m[1])", "string(s.t)"
        of_part = f"p = {part}"
        rows = read_table(spark, client, table, where=f"{of_part} and id = 2").selectExpr(*texts)
        assert [tuple(row) for row in rows.collect()] == [(2, *[clear] * 4)]
        theirs = hive.execute(f"select t, a[1], m[1], s.t from {table} where {of_part} order by id")
        assert [[text.removesuffix(".0") for text in row] for row in theirs] == [
            [texts] * 4 for texts in (meant, shown, clear)
        ]
        for number, column in itertools.product((0, 1), "tams"):
            rows = read_table(spark, client, table, where=f"{of_part} and id = {number}").select(column)
            with pytest.raises(PySparkException, match=rf"column {column} has .* by the clock of {zone}"):
                rows.collect()
    assert read_table(spark, client, table).count() == 3 * len(DOUBTFUL[zone])
    if kind == ACID:
        rows = read_table(spark, client, table, row_ids=True)
        with pytest.raises(SparkJobError, match=f"Writing to {table} failed: .* column . has"):
            update(spark, client, table, rows.withColumn("t", fn.expr("timestamp'2026-01-01 00:00:00'")))
    zones("UTC")
    rows = read_table(spark, client, table).orderBy("p", "id").selectExpr("string(t)", "string(a[1])")
    assert [tuple(row) for row in rows.collect()] == [
        (time, time) for times in DOUBTFUL[zone] for time in times
    ]

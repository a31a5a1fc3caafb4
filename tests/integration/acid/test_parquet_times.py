"""Dates and timestamps in Parquet files are what they are to Hive, whoever wrote them, wherever, and how."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.tables.read.reader import read_table
from airflow_hive_federation.tables.spark_internals import time_zone
from airflow_hive_federation.tables.write.statements import append
from tests.support.hive_beside_cleaner import HiveBesideCleaner

ONLY = "tblproperties ('transactional'='true', 'transactional_properties'='insert_only')"
COLUMNS = (
    "id int, t timestamp, d date, a array<timestamp>, s struct<t:timestamp,n:int>, m map<string,timestamp>"
)
# By the clock of Los Angeles, of the sun there until noon of 18 November 1883.
TIMES = [
    "0001-01-01 00:00:00",
    "1500-02-28 23:59:59",
    "1500-03-01 12:00:05",
    "1582-10-04 12:00:00",
    "1582-10-15 00:00:00",
    "1677-01-01 00:00:00",
    "1883-11-18 11:00:00",
    "1883-11-18 12:01:00",
    "1899-12-31 23:00:00",
    "1940-06-01 00:00:00",
    "1969-12-31 23:59:58.5",
    "2024-07-01 02:30:00.000001",
    "2300-01-01 00:00:00.25",
    "9999-12-31 23:59:59.999999",
]
WAYS = {
    "default": {},
    "int64": {"hive.parquet.write.int64.timestamp": "true"},
    "proleptic": {"hive.parquet.date.proleptic.gregorian": "true"},
    "legacy": {"hive.parquet.timestamp.write.legacy.conversion.enabled": "true"},
}
SHOWN = ["id", *(f"cast({expression} as string)" for expression in ("t", "d", "a[0]", "s.t", "m['k']"))]


@pytest.fixture(scope="module")
def hive(source: EmbeddedMetastore) -> Iterator[HiveSql]:
    """Hive where it is another time than where Spark runs."""
    with HiveBesideCleaner(source, settings={"hive.vectorized.execution.enabled": "false"}) as hive:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TZ", "America/Los_Angeles")
            hive.execute("create database parquet_times")  # starts its JVM
        time.tzset()  # glibc may have looked meanwhile
        yield hive


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, hive: HiveSql) -> Iterator[str]:
    _set(hive, request.param, "true")
    yield request.param
    _set(hive, request.param, "false")
    hive.set("hive.vectorized.execution.enabled", "false")


@pytest.fixture(params=["UTC", "Europe/Berlin"])
def session_zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    key = "spark.sql.session.timeZone"
    before = spark.conf.get(key)
    spark.conf.set(key, request.param)
    yield request.param
    spark.conf.set(key, str(before))


def test_what_hive_writes(way: str, spark: SparkSession, client: MetastoreClient, hive: HiveSql) -> None:
    table = f"parquet_times.{way}"
    hive.execute(f"create table {table} ({COLUMNS}) stored as parquet {ONLY}")
    _insert(hive, table, TIMES)
    hive.execute(f"insert into {table} (id) values (100)")
    wanted = [(i, text, text[:10], text, text, text) for i, text in enumerate(TIMES)]
    assert _theirs(hive, table) == [*wanted, (100, *[None] * 5)]
    ours = read_table(spark, client, table).selectExpr(*SHOWN).orderBy("id").collect()
    assert [tuple(row) for row in ours] == [*wanted, (100, *[None] * 5)]


def test_what_we_compact(way: str, spark: SparkSession, client: MetastoreClient, hive: HiveSql) -> None:
    """Files of ours have no zone to Hive: timestamps in them are what the writer's clock showed."""
    table = f"parquet_times.compacted_{way}"
    hive.execute(f"create table {table} ({COLUMNS}) stored as parquet {ONLY}")
    # Of an older Hive's way of writing before 1900 the worker does not know enough.
    texts = [text for text in TIMES if way != "legacy" or text > "1900"]
    wanted: list[tuple[object, ...]] = []
    for first in (0, 100, 200):
        _insert(hive, table, texts, first)
        wanted += [(first + i, text, text[:10], text, text, text) for i, text in enumerate(texts)]
        if first:
            settings = client.settings
            (report,) = compact_table(settings, table, CompactionKind.MAJOR, in_threads(1))
            assert report.state == "compacted", report
        assert _theirs(hive, table) == wanted
        ours = read_table(spark, client, table).selectExpr(*SHOWN).orderBy("id").collect()
        assert [tuple(row) for row in ours] == wanted
    hive.set("hive.vectorized.execution.enabled", "true")
    flat = [_plain(row) for row in hive.execute(f"select id, t, d from {table} order by id")]
    hive.set("hive.vectorized.execution.enabled", "false")
    assert flat == [row[:3] for row in wanted]
    if way == "legacy":
        _insert(hive, table, ["1850-01-01 00:00:00"], 300)
        (report,) = compact_table(client.settings, table, CompactionKind.MAJOR, in_threads(1))
        assert report.state == "failed"
        assert "before 1900" in report.message


def test_what_we_compact_of_several_writers(
    spark: SparkSession, client: MetastoreClient, hive: HiveSql
) -> None:
    table = "parquet_times.several"
    hive.execute(f"create table {table} ({COLUMNS}) stored as parquet {ONLY}")
    wanted: list[tuple[object, ...]] = []
    for first, way in ((0, "int64"), (100, "default"), (200, "proleptic")):
        _set(hive, way, "true")
        _insert(hive, table, TIMES, first)
        _set(hive, way, "false")
        wanted += [(first + i, text, text[:10], text, text, text) for i, text in enumerate(TIMES)]
        if first:
            (report,) = compact_table(client.settings, table, CompactionKind.MAJOR, in_threads(1))
            assert report.state == "compacted", report
        rows = read_table(spark, client, table)
        assert _theirs(hive, table) == wanted
        assert [tuple(row) for row in rows.selectExpr(*SHOWN).orderBy("id").collect()] == wanted
    append(spark, client, table, rows.where("id < 100").withColumn("id", fn.expr("id + 300")).coalesce(1))
    wanted += [(int(str(row[0])) + 300, *row[1:]) for row in wanted if int(str(row[0])) < 100]
    assert _theirs(hive, table) == wanted
    (report,) = compact_table(client.settings, table, CompactionKind.MAJOR, in_threads(1))
    assert report.state == "compacted", report
    assert _theirs(hive, table) == wanted
    rows = read_table(spark, client, table)
    assert [tuple(row) for row in rows.selectExpr(*SHOWN).orderBy("id").collect()] == wanted


def test_what_microseconds_would_lose_is_refused(client: MetastoreClient, hive: HiveSql) -> None:
    table = "parquet_times.digits"
    hive.execute(f"create table {table} (id int, t timestamp, u timestamp) stored as parquet {ONLY}")
    fine, far = "2026-11-23 10:00:00.123456789", "9999-12-31 00:00:00"
    hive.execute(f"insert into {table} values (1, '{fine}', '{far}')")
    hive.execute(f"insert into {table} values (2, '{fine}', '{far}')")
    (report,) = compact_table(client.settings, table, CompactionKind.MAJOR, in_threads(1))
    assert report.state == "compacted", report
    rows = [(number, fine, far) for number in ("1", "2")]
    assert hive.execute(f"select id, t, u from {table} order by id") == rows
    hive.execute(f"insert into {table} values (3, '{far}', '{far}')")
    (report,) = compact_table(client.settings, table, CompactionKind.MAJOR, in_threads(1))
    assert report.state == "failed"
    assert "in the column t, beside some that are finer than microseconds" in report.message


def test_a_column_of_timestamps_that_was_added(client: MetastoreClient, hive: HiveSql) -> None:
    table = "parquet_times.added"
    hive.execute(f"create table {table} (id int) stored as parquet {ONLY}")
    hive.execute(f"insert into {table} values (1)")
    hive.execute(f"alter table {table} add columns (t timestamp)")
    hive.execute(f"insert into {table} values (2, timestamp '{TIMES[-3]}')")
    (report,) = compact_table(client.settings, table, CompactionKind.MAJOR, in_threads(1))
    assert report.state == "compacted", report
    assert hive.execute(f"select id, t from {table} order by id") == [("1", None), ("2", TIMES[-3])]


def test_what_we_write(
    spark: SparkSession, client: MetastoreClient, hive: HiveSql, session_zone: str
) -> None:
    """By the clock of the JVM's time zone, and not of the session's."""
    table = f"parquet_times.ours_{session_zone.lower().replace('/', '_')}"
    for name, stored in ((table, "parquet"), (f"{table}_text", "textfile")):
        columns = COLUMNS if stored == "parquet" else "id int, t timestamp, d date"
        hive.execute(f"create table {name} ({columns}) stored as {stored} {ONLY}")
        rows = spark.createDataFrame(list(enumerate(TIMES)), "id int, x string").selectExpr(
            "id", f"to_timestamp(concat(x, ' {time_zone(spark)}')) t", "cast(substr(x, 1, 10) as date) d"
        )
        if stored == "parquet":
            rows = rows.selectExpr("*", "array(t) a", "struct(t, id n) s", "map('k', t) m")
        append(spark, client, name, rows.coalesce(1))
        shown = SHOWN if stored == "parquet" else SHOWN[:3]
        written = rows.orderBy("id").selectExpr(*shown).collect()
        assert read_table(spark, client, name).orderBy("id").selectExpr(*shown).collect() == written
    wanted = [(i, text, text[:10], text, text, text) for i, text in enumerate(TIMES)]
    assert _theirs(hive, table) == wanted
    for text in (TIMES[0], TIMES[4], TIMES[-3]):
        for condition in (f"t = timestamp '{text}'", f"d = date '{text[:10]}'"):
            assert hive.execute(f"select t from {table} where {condition}")[0][0].removesuffix(".0") == text
    lines = hive.execute(f"select id, t, d from {table}_text order by id")
    assert [_plain(row) for row in lines] == [row[:3] for row in wanted]


def _set(hive: HiveSql, way: str, value: str) -> None:
    for key in WAYS[way]:
        hive.set(key, value)


def _insert(hive: HiveSql, table: str, texts: Sequence[str], first: int = 0) -> None:
    values = " union all ".join(
        f"select {first + i} id, timestamp '{text}' t, date '{text[:10]}' d" for i, text in enumerate(texts)
    )
    selected = "select id, t, d, array(t), named_struct('t', t, 'n', id), map('k', t)"
    hive.execute(f"insert into {table} {selected} from ({values}) v")


def _theirs(hive: HiveSql, table: str) -> list[tuple[object, ...]]:
    return [
        _plain(row) for row in hive.execute(f"select id, t, d, a[0], s.t, m['k'] from {table} order by id")
    ]


def _plain(row: tuple[str | None, ...]) -> tuple[object, ...]:
    return (int(str(row[0])), *(None if value is None else value.removesuffix(".0") for value in row[1:]))

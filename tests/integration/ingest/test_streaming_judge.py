"""Java's own ``HiveStreamingConnection`` and ours write the same; Hive changes and compacts it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.storage.filesystem import local_path
from benchmarks.hive_streaming import JavaStreaming
from tests.support.hives_worker import hives_worker
from tests.support.small_source import connected

pytestmark = pytest.mark.slow

DATABASE = "streamed_twice"
COLUMNS = (
    "id int, msg string, d decimal(10,2), t timestamp, day date, b boolean, x double, c char(4), v varchar(3)"
)
TABLES = {
    "plain": "",
    "bucketed": "CLUSTERED BY (id) INTO 3 BUCKETS",
    "fixed": "PARTITIONED BY (p string, q int) CLUSTERED BY (msg) INTO 2 BUCKETS",
    "dynamic": "PARTITIONED BY (p string, q int) CLUSTERED BY (id, msg) INTO 3 BUCKETS",
}
ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true', 'no_auto_compaction'='true')"
BATCH = 4


@pytest.fixture(scope="module")
def java(source: EmbeddedMetastore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaStreaming]:
    with JavaStreaming(source.uri, tmp_path_factory.mktemp("java"), briefly=True) as streaming:
        yield streaming


@pytest.fixture(scope="module")
def sql(hive_sql_source: HiveSql) -> HiveSql:
    hive_sql_source.execute(f"CREATE DATABASE {DATABASE}")
    return hive_sql_source


def record(chance: random.Random, keys: bool) -> str:
    fields = [
        str(chance.randint(-1000, 1000)),
        chance.choice(["", "été", "日本", "x y", "text " * 9, r"\N"]),
        chance.choice(["1.25", "-99999999.99", r"\N"]),
        chance.choice(["2026-01-02 03:04:05.678", "1969-12-31 23:59:58", r"\N"]),
        chance.choice(["2026-02-28", "1582-10-04", r"\N"]),
        chance.choice(["true", "false", r"\N"]),
        chance.choice(["1.5", "-1e300", "NaN", r"\N"]),
        chance.choice(["ab", "abcdef", r"\N"]),
        chance.choice(["é", "abcdef", r"\N"]),
    ]
    partition = [chance.choice(["x", "a/b%", "é", ""]), str(chance.randint(0, 1))] if keys else []
    return ",".join([*fields, *partition])


@pytest.fixture(scope="module")
def committed(sql: HiveSql, source: EmbeddedMetastore, java: JavaStreaming) -> dict[str, int]:
    """Records that were committed, by table; each is there twice."""
    counts = {}
    for name, clauses in TABLES.items():
        chance = random.Random(name)
        static = ["k", "7"] if name == "fixed" else []
        transactions = [
            {
                "records": [record(chance, name == "dynamic") for _ in range(chance.randint(1, 40))],
                "abort": place in {1, 4},
            }
            for place in range(6)
        ]
        for writer in ("ours", "java"):
            sql.execute(f"CREATE TABLE {DATABASE}.{name}_{writer} ({COLUMNS}) {clauses} {ACID}")
        java.stream(DATABASE, f"{name}_java", transactions, static=static, batch=BATCH)
        stream(source, f"{name}_ours", transactions, static)
        counts[name] = sum(
            len(transaction["records"]) for transaction in transactions if not transaction["abort"]
        )
    return counts


@pytest.mark.parametrize("name", TABLES)
def test_equal_tables_bucket_by_bucket(
    sql: HiveSql, source: EmbeddedMetastore, committed: dict[str, int], name: str
) -> None:
    ours = rows(sql, f"{name}_ours")
    assert len(ours) == committed[name]
    assert ours == rows(sql, f"{name}_java")
    # Java leaves files, too, that have rows of aborted transactions only.
    assert set(files(source, f"{name}_ours")) <= set(files(source, f"{name}_java"))


def test_the_order_of_bucket_columns_is_that_of_hives_insert(
    sql: HiveSql, source: EmbeddedMetastore, committed: dict[str, int]
) -> None:
    """Java's streaming takes them in the table's order instead, and its rows lie in other buckets."""
    for writer in ("ours", "hive"):
        sql.execute(
            f"CREATE TABLE {DATABASE}.order_{writer} (id int, msg string) "
            f"CLUSTERED BY (msg, id) INTO 7 BUCKETS {ACID}"
        )
    texts = [f"{number},text {number % 9}" for number in range(100)]
    stream(source, "order_ours", [{"records": texts, "abort": False}], [])
    sql.execute(f"INSERT INTO {DATABASE}.order_hive SELECT id, msg FROM {DATABASE}.order_ours")
    ours, theirs = (
        sorted(sql.execute(f"SELECT ROW__ID.bucketid, id FROM {DATABASE}.order_{writer}"))
        for writer in ("ours", "hive")
    )
    assert ours == theirs
    assert len(ours) == 100


def test_hive_reads_texts_that_are_longer_than_their_bounds(sql: HiveSql, source: EmbeddedMetastore) -> None:
    """Their statistics are cut; Hive's readers push conditions down and skip stripes by them."""
    sql.execute(f"CREATE TABLE {DATABASE}.long (id int, msg string) CLUSTERED BY (msg) INTO 2 BUCKETS {ACID}")
    long = "x" * 200_000
    stream(source, "long", [{"records": [f"1,{long}a", f"2,{long}b", "3,short"], "abort": False}], [])
    for condition, wanted in (
        ("msg = concat(repeat('x', 200000), 'b')", "2"),
        ("msg > 'xx'", "1,2"),
        ("msg > 'xy'", ""),
        ("msg < 'shorter'", "3"),
        ("length(msg) > 200000", "1,2"),
    ):
        rows = sql.execute(f"SELECT id FROM {DATABASE}.long WHERE {condition}")
        assert ",".join(sorted(str(row[0]) for row in rows)) == wanted, condition
    sql.execute(f"ANALYZE TABLE {DATABASE}.long COMPUTE STATISTICS")
    sql.execute(f"UPDATE {DATABASE}.long SET id = 4 WHERE msg LIKE '%b'")
    assert sql.execute(f"SELECT sum(id), sum(length(msg)) FROM {DATABASE}.long") == [("8", "400007")]


def test_hive_changes_and_compacts_what_we_write(
    sql: HiveSql, source: EmbeddedMetastore, committed: dict[str, int]
) -> None:
    kinds, before = {"bucketed_ours": "minor", "plain_ours": "major"}, {}
    for table, kind in kinds.items():
        expected = [changed(row) for _, *row in rows(sql, table) if int(row[0]) >= -300]
        sql.execute(f"UPDATE {DATABASE}.{table} SET x = id WHERE id > 300")
        sql.execute(f"DELETE FROM {DATABASE}.{table} WHERE id < -300")
        before[table] = rows(sql, table)
        assert sorted((row for _, *row in before[table]), key=repr) == sorted(expected, key=repr)
        assert 0 < len(expected) < committed[table.removesuffix("_ours")]
        sql.execute(f"ALTER TABLE {DATABASE}.{table} COMPACT '{kind}'")
    hives_worker(source)
    for table in kinds:
        assert rows(sql, table) == before[table]
        assert any("_v" in path.partition("/")[0] for path in files(source, table)), table


def changed(row: list[str | None]) -> list[str | None]:
    """Return a row as the update leaves it."""
    number = int(row[0] or 0)
    place = COLUMNS.split(", ").index("x double")
    return [*row[:place], f"{number}.0", *row[place + 1 :]] if number > 300 else row


def stream(
    metastore: EmbeddedMetastore, table: str, transactions: list[dict[str, Any]], static: list[str]
) -> None:
    connection = (
        HiveStreamingConnection.new_builder()
        .with_database(DATABASE)
        .with_table(table)
        .with_static_partition_values(static)
        .with_transaction_batch_size(BATCH)
        .with_record_writer(StrictDelimitedInputWriter(field_delimiter=","))
        .with_conf(MetastoreSettings(uris=(metastore.uri,)))
        .connect()
    )
    with connection:
        for transaction in transactions:
            connection.begin_transaction()
            connection.write_records([text.encode() for text in transaction["records"]])
            connection.abort_transaction() if transaction["abort"] else connection.commit_transaction()


def rows(sql: HiveSql, table: str) -> list[Any]:
    return sorted(sql.execute(f"SELECT ROW__ID, * FROM {DATABASE}.{table}"), key=repr)


def files(metastore: EmbeddedMetastore, table: str) -> list[str]:
    with connected(metastore) as client:
        described: Any = client.get_table(DATABASE, table)
    root = Path(local_path(described.sd.location) or "")
    return sorted(str(path.relative_to(root)) for path in root.rglob("bucket_*"))

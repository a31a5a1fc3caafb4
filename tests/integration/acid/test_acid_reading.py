"""Reading several tables as of one moment, under a lock, as views; and only what a predicate needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import ConfigurationError, LockTimeoutError, TransactionAbortedError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.tables.read.reader import read_table
from airflow_hive_federation.tables.read.sessions import read_tables, reading, register
from airflow_hive_federation.tables.write.statements import append, delete
from airflow_hive_federation.transactions.snapshots import take_snapshots
from airflow_hive_federation.transactions.transaction import Transaction
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.small_source import make_table

DATABASE = "reading"
ACID = "stored as orc tblproperties ('transactional'='true', 'no_auto_compaction'='true')"
PATIENT = PollPolicy(first_s=0.2, longest_s=1.0, timeout_s=180.0)


@pytest.fixture(scope="module")
def hive(hive_sql_source: HiveSql) -> HiveSql:
    """Hive's SQL engine, with the database of this module."""
    hive_sql_source.execute(f"create database {DATABASE}")
    return hive_sql_source


def test_a_transaction_over_two_tables_is_seen_in_both_or_in_none(
    hive: HiveSql, client: MetastoreClient, spark: SparkSession
) -> None:
    for table in ("orders", "lines"):
        hive.execute(f"create table {DATABASE}.{table} (id int) {ACID}")
    names = [f"{DATABASE}.Orders", f"{DATABASE}.lines"]
    with Transaction(client) as transaction:
        for name in names:
            append(spark, client, name.lower(), spark.range(1).selectExpr("1 id"), transaction=transaction)
        # One has written already, and the other has not committed.
        before = read_tables(spark, client, names)
    after = read_tables(spark, client, names)
    assert [before[name].count() for name in names] == [0, 0]
    assert [after[name].count() for name in names] == [1, 1]
    assert before.taken_at is not None
    assert after.taken_at is not None
    assert before.taken_at < after.taken_at
    again = read_tables(spark, client, names, snapshots=before.snapshots)
    assert again[names[0]].count() == 0
    assert again.taken_at == before.taken_at
    with pytest.raises(ConfigurationError, match=f"no snapshot of {DATABASE}.lines"):
        read_tables(spark, client, names, snapshots=take_snapshots(client, [f"{DATABASE}.orders"]))
    with pytest.raises(ConfigurationError, match="not among the tables"):
        after.read(f"{DATABASE}.others")


def test_views_for_sql(hive: HiveSql, client: MetastoreClient, spark: SparkSession) -> None:
    hive.execute(f"create table {DATABASE}.seen (id int, name string) partitioned by (day date) {ACID}")
    hive.execute(f"insert into {DATABASE}.seen values (1, 'a', '2026-01-01'), (2, 'b', '2026-01-02')")
    hive.execute(f"delete from {DATABASE}.seen where id = 1")
    hive.execute(f"create table {DATABASE}.plain stored as orc as select 2 id, 'x' label")
    name = f"{DATABASE}.seen"
    register(spark, client, [name, f"{DATABASE}.plain"])
    joined = spark.sql("select name, label, day from seen join plain using (id)").collect()
    assert [(row.name, row.label, str(row.day)) for row in joined] == [("b", "x", "2026-01-02")]
    # It stands still until it is registered again.
    append(spark, client, name, spark.sql("select 3 id, 'c' name, date'2026-01-02' day"))
    assert spark.sql("select * from seen").count() == 1
    register(spark, client, {name: "now seen"})
    assert spark.sql("select * from `now seen`").count() == 2
    with pytest.raises(ConfigurationError, match="cannot both be the view"):
        register(spark, client, {name: "one", f"{DATABASE}.plain": "ONE"})
    with reading(spark, client, [name]) as tables:
        assert tables.register() == {name: "seen"}
        assert spark.sql("select * from seen").count() == 2
    assert not spark.catalog.tableExists("seen")


def test_the_cleaner_keeps_what_is_being_read(
    spark: SparkSession, hives_default_cleaner: EmbeddedMetastore
) -> None:
    settings = MetastoreSettings(uris=(hives_default_cleaner.uri,))
    names = [f"{DATABASE}.{table}" for table in ("kept", "cleaned")]
    warehouse = hives_default_cleaner.warehouse / f"{DATABASE}.db"
    kept, cleaned = (warehouse / table for table in ("kept", "cleaned"))
    with MetastoreClient(settings) as client:
        client.create_database(types.Database(name=DATABASE))
        for table in ("kept", "cleaned"):
            make_table(client, DATABASE, table)
            for number in (1, 2):
                append(spark, client, f"{DATABASE}.{table}", spark.sql(f"select {number} a, 'x' b"))
        with reading(spark, client, names[:1]) as tables:
            rows = tables[names[0]]
            locks = client.show_locks(database=DATABASE, table="kept")
            assert [(lock.type, lock.state) for lock in locks] == [(1, 1)]  # SHARED_READ, ACQUIRED
            for name in names:
                (report,) = compact_table(settings, name, CompactionKind.MAJOR, in_threads(1))
                assert report.state == "compacted"
            # The cleaner has come by: it has removed what nobody reads.
            assert wait_until(lambda: not _deltas(cleaned), PATIENT)
            assert len(_deltas(kept)) == 2
            assert sorted(row.a for row in rows.collect()) == [1, 2]
            with (
                pytest.raises(LockTimeoutError, match="kept"),
                Transaction(client, lock_policy=PollPolicy(timeout_s=0.2)) as writer,
            ):
                writer.lock([_overwrite("kept")])
        assert wait_until(lambda: not _deltas(kept), PATIENT)
        assert client.show_locks(database=DATABASE, table="kept") == []
        assert sorted(row.a for row in read_table(spark, client, names[0]).collect()) == [1, 2]


def test_a_reader_that_lost_its_lock_fails(
    hive: HiveSql, client: MetastoreClient, spark: SparkSession
) -> None:
    hive.execute(f"create table {DATABASE}.lost (id int) {ACID}")

    def read_and_lose() -> None:
        with reading(spark, client, [f"{DATABASE}.lost"]) as tables:
            assert tables[f"{DATABASE}.lost"].count() == 0
            (lock,) = client.show_locks(database=DATABASE, table="lost")
            client.abort_txns([lock.txnid or 0])

    with pytest.raises(TransactionAbortedError):
        read_and_lose()
    # A transaction that wrote nothing has left nothing.
    assert read_tables(spark, client, [f"{DATABASE}.lost"])[f"{DATABASE}.lost"].count() == 0


def test_a_predicate_leaves_out_partitions_and_buckets(
    hive: HiveSql, client: MetastoreClient, spark: SparkSession
) -> None:
    name = f"{DATABASE}.pruned"
    hive.execute(
        f"create table {name} (id bigint, city string, n int) partitioned by (day date, part string) "
        f"clustered by (id, city) into 4 buckets {ACID}"
    )
    cities = "element_at(array('Köln', 'Rom', 'Oslo'), cast(id % 3 as int) + 1)"
    days = "date_add(date'2026-01-01', cast(id % 2 as int))"
    rows = spark.range(60).selectExpr(
        "id", f"{cities} city", "cast(id as int) n", f"{days} day", "if(id % 5 = 0, null, 'a/b') part"
    )
    append(spark, client, name, rows)
    gone = read_table(spark, client, name, row_ids=True).where("id % 7 = 0")
    delete(spark, client, name, gone)
    theirs = {int(row[0] or -1) for row in hive.execute(f"select id from {name}")}
    assert theirs == {number for number in range(60) if number % 7}

    def ids(where: str) -> tuple[list[int], int]:
        rows = read_table(spark, client, name, where=where)
        return sorted(row.id for row in rows.collect()), _files(rows)

    every = _files(read_table(spark, client, name))

    def where(condition: Any) -> list[int]:
        return [number for number in sorted(theirs) if condition(number)]

    row_ids, files = ids("day = '2026-01-02' and part is null")
    assert row_ids == where(lambda n: n % 2 == 1 and n % 5 == 0)
    assert files <= every // 4 + 1
    row_ids, files = ids("id in (8, 9) and city = 'Oslo'")
    assert row_ids == where(lambda n: n in {8, 9} and n % 3 == 2)
    assert 0 < files < every
    # These leave out a bucket column, or compare in another type.
    for text, condition in {
        "id = 8": lambda n: n == 8,
        "id = 8 and city = 7": None,
        "id = 8 or day = '2026-01-02'": lambda n: n == 8 or n % 2 == 1,
        "id = 8 and city = concat('Os', 'lo')": lambda n: n == 8,
        "'Oslo' = city and id = 8.0": lambda n: n == 8,
        "rand() >= 0 and day is not null": lambda _: True,
        "n = (select 8)": lambda n: n == 8,
    }.items():
        if condition is not None:
            assert ids(text)[0] == where(condition), text
    assert ids("day = '1999-01-01'") == ([], 0)
    found_in_one = read_table(
        spark, client, name, partitions=["day=2026-01-01/part=a%2Fb"], where="id < 20", columns=["id"]
    )
    assert sorted(row.id for row in found_in_one.collect()) == where(
        lambda n: n < 20 and n % 2 == 0 and n % 5
    )
    for wrong in ("day ==== 1", "no_such_column = 1"):
        with pytest.raises(ConfigurationError):
            read_table(spark, client, name, where=wrong)


@pytest.mark.parametrize("storage", ["parquet", "orc"])
def test_dates_before_the_gregorian_calendar(
    storage: str, hive: HiveSql, client: MetastoreClient, spark: SparkSession
) -> None:
    name = f"{DATABASE}.old_{storage}"
    hive.execute(
        f"create table {name} (day date) stored as {storage} "
        "tblproperties ('transactional'='true', 'transactional_properties'='insert_only')"
    )
    days = ["0001-01-01", "1500-02-28", "1500-03-01", "1582-10-04", "1582-10-15", "2000-02-29"]
    values = ", ".join(f"(date '{day}')" for day in days)
    hive.execute(f"insert into {name} values {values}")
    # Hive's files count by the Julian calendar, ours by the proleptic one.
    append(spark, client, name, spark.createDataFrame([(day,) for day in days], "day string"))
    expected = sorted(2 * days)
    assert sorted(row[0] or "" for row in hive.execute(f"select day from {name}")) == expected
    ours = read_table(spark, client, name).selectExpr("cast(day as string) day")
    assert sorted(row.day for row in ours.collect()) == expected


def _deltas(directory: Path) -> Sequence[Path]:
    return list(directory.glob("delta_*"))


def _overwrite(table: str) -> Any:
    from airflow_hive_federation.transactions.locks import TableWrite, WriteKind

    return TableWrite(database=DATABASE, table=table, kind=WriteKind.OVERWRITE)


def _files(rows: DataFrame) -> int:
    """Return the number of insert files that a frame opens."""
    return len([path for path in rows.inputFiles() if "/delete_delta_" not in path])

"""Reading a live table through its metastore."""

from __future__ import annotations

import json
import shutil

import pytest
from pyspark.sql import SparkSession

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import AcidFormatError, ConfigurationError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.tables.read.reader import read_table
from airflow_hive_federation.transactions.snapshots import take_snapshots


@pytest.fixture(scope="module")
def hive(hive_sql_source: HiveSql) -> HiveSql:
    return hive_sql_source


def test_a_snapshot_stays_what_it_was(spark: SparkSession, hive: HiveSql, client: MetastoreClient) -> None:
    hive.execute("create database live")
    hive.execute(
        "create table live.orders (id int, name varchar(20)) partitioned by (day date) "
        "stored as orc tblproperties ('transactional'='true')"
    )
    hive.execute("insert into live.orders values (1,'a','2026-01-01'), (2,'b','2026-01-02')")
    hive.execute("create view live.seen as select * from live.orders")
    before = take_snapshots(client, ["live.orders"])["live.orders"]
    hive.execute("update live.orders set name = 'B' where id = 2")
    shown = "select ROW__ID, id, name, day from live.orders order by id"

    now = read_table(spark, client, "live.orders", row_ids=True).orderBy("id")
    assert [(row.ROW__ID.asDict(), row.id, row.name, str(row.day)) for row in now.collect()] == [
        ({**_json(row[0]), "partition": [row[3]]}, int(row[1]), row[2], row[3]) for row in hive.execute(shown)
    ]

    then = read_table(spark, client, "live.orders", snapshot=before, columns=["name"])
    assert sorted(row.name for row in then.collect()) == ["a", "b"]

    with pytest.raises(ConfigurationError, match="is a view"):
        read_table(spark, client, "live.seen")


def test_columns_are_matched_as_hive_matches_them(
    spark: SparkSession, hive: HiveSql, client: MetastoreClient
) -> None:
    hive.execute("create database renamed")
    for table, kind in {
        "acid": "stored as orc tblproperties ('transactional'='true')",
        "plain_orc": "stored as orc tblproperties ('transactional'='false')",
        "plain_parquet": "stored as parquet tblproperties ('transactional'='false')",
    }.items():
        name = f"renamed.{table}"
        hive.execute(f"create table {name} (id int, name string, inner_one struct<x:int,y:string>) {kind}")
        hive.execute(f"insert into {name} select 1, 'a', named_struct('x', 7, 'y', 'p')")
        hive.execute(f"alter table {name} change name title string")
        hive.execute(f"alter table {name} change id number bigint")
        hive.execute(f"alter table {name} add columns (extra int)")
        hive.execute(f"insert into {name} select 2, 'b', named_struct('x', 8, 'y', 'q'), 5")
        shown = "number, title, inner_one.y, extra"
        theirs = sorted(hive.execute(f"select {shown} from {name}"), key=repr)
        rows = read_table(spark, client, name)
        together = rows.selectExpr(*shown.split(", ")).collect()
        ours = [tuple(None if value is None else str(value) for value in row) for row in together]
        assert sorted(ours, key=repr) == theirs, table
        # Spark leaves out columns that no query reads, which must not shift the rest.
        for place, column in enumerate(shown.split(", ")):
            alone = sorted(str(row[0]) for row in rows.selectExpr(column).collect())
            assert alone == sorted(str(row[place]) for row in theirs), column
        # Conditions that Spark may take for those of the scan's own.
        assert rows.where("extra = 5 and number is not null").select("title").collect() == [("b",)]
        assert rows.where("number is not null").selectExpr("sum(extra)").collect() == [(5,)]


def test_partitions_that_were_compacted_before_and_after_a_column_was_renamed(
    spark: SparkSession, hive: HiveSql, client: MetastoreClient, source: EmbeddedMetastore
) -> None:
    """Hive 3 and replicas name both bases alike: the write id of one dynamic insert."""
    hive.execute("create database compacted")
    home = source.warehouse / "compacted.db"
    for table, column in (("t", "name"), ("after", "title")):
        hive.execute(
            f"create table compacted.{table} (id int, {column} string) partitioned by (p int) "
            "stored as orc tblproperties ('transactional'='true', 'no_auto_compaction'='true')"
        )
        hive.execute(f"insert into compacted.{table} values (1, 'a', 1), (2, 'b', 2)")
    hive.execute("alter table compacted.t change name title string")
    (before,), (after,) = (home.glob(f"{place}/delta_*") for place in ("t/p=1", "after/p=2"))
    (replaced,) = home.glob("t/p=2/delta_*")
    before.rename(home / "t/p=1/base_0000001")
    shutil.rmtree(replaced)
    after.rename(home / "t/p=2/base_0000001")
    theirs = hive.execute("select id, title, p from compacted.t order by id")
    assert theirs == [("1", "a", "1"), ("2", "b", "2")]
    rows = read_table(spark, client, "compacted.t").orderBy("id").collect()
    assert [tuple(map(str, row)) for row in rows] == theirs


def test_varchars_are_cut_to_the_columns_length(
    spark: SparkSession, hive: HiveSql, client: MetastoreClient
) -> None:
    hive.execute("create database cut")
    for table, kind in {
        "acid": "stored as orc tblproperties ('transactional'='true')",
        "plain_orc": "stored as orc tblproperties ('transactional'='false')",
        "plain_parquet": "stored as parquet tblproperties ('transactional'='false')",
        "plain_text": "stored as textfile tblproperties ('transactional'='false')",
    }.items():
        name = f"cut.{table}"
        hive.execute(f"create table {name} (id int, v varchar(6)) {kind}")
        hive.execute(f"insert into {name} values (1, 'abcdef'), (2, 'ab '), (3, '日😀é日é'), (4, null)")
        hive.execute(f"alter table {name} change v v varchar(3)")
        rows = read_table(spark, client, name).orderBy("id").collect()
        for vectorized in ("true", "false"):
            hive.set("hive.vectorized.execution.enabled", vectorized)
            theirs = hive.execute(f"select id, v from {name} order by id")
            assert [(str(row.id), row.v) for row in rows] == theirs, table
        assert read_table(spark, client, name, where="v = 'abc'").count() == 1


def test_a_column_that_is_called_row(spark: SparkSession, hive: HiveSql, client: MetastoreClient) -> None:
    """ORC looks conditions up among the user's columns: one on a field of ``row`` is not one on the row."""
    hive.execute("create database rows_in_rows")
    hive.execute(
        "create table rows_in_rows.t (id int, `row` struct<id:int,other:int>, name string) "
        "stored as orc tblproperties ('transactional'='true')"
    )
    hive.execute(
        "insert into rows_in_rows.t select 5, named_struct('id', -5, 'other', 7), 'a' union all "
        "select 6, named_struct('id', -6, 'other', 8), 'b'"
    )
    rows = read_table(spark, client, "rows_in_rows.t")
    assert rows.where("id > 5").select("row.id", "name").collect() == [(-6, "b")]
    assert rows.where("row.id > -6 and row.other = 7").select("id", "row").collect() == [(5, (-5, 7))]
    assert rows.where("name = 'a'").selectExpr("sum(id)", "sum(row.other)").collect() == [(5, 7)]


def _json(text: str | None) -> object:
    return json.loads(text or "null")


def test_files_that_are_damaged_or_gone(
    spark: SparkSession, hive: HiveSql, client: MetastoreClient, source: EmbeddedMetastore
) -> None:
    hive.execute("create database damaged")
    hive.execute("create table damaged.t (id int) stored as orc tblproperties ('transactional'='true')")
    hive.execute("insert into damaged.t values (1)")
    (bucket,) = (source.warehouse / "damaged.db" / "t").rglob("bucket_*")
    content = bucket.read_bytes()
    bucket.write_bytes(content[:-10])
    with pytest.raises(AcidFormatError, match=bucket.name):
        read_table(spark, client, "damaged.t")
    bucket.write_bytes(content)
    # What Spark's own INSERT leaves behind in an ACID table.
    (source.warehouse / "damaged.db" / "t" / "part-00000.orc").write_bytes(content)
    with pytest.raises(AcidFormatError, match=r"part-00000\.orc"):
        read_table(spark, client, "damaged.t")

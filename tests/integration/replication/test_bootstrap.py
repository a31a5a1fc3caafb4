"""Bootstrap between two real metastores, written and read by real Hive."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.dump.bootstrap import DumpSummary
from airflow_hive_federation.storage.filesystem import local_path
from tests.support.replicating import Replication, replication

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE = "shop"

#: Hive writes the source by every statement that changes an ACID table.
SOURCE = """
CREATE DATABASE shop COMMENT 'a shop' WITH DBPROPERTIES ('owner.team' = 'data');

CREATE TABLE shop.orders (id int, item string, price decimal(10,2), at timestamp)
PARTITIONED BY (region string) CLUSTERED BY (id) INTO 3 BUCKETS STORED AS ORC
TBLPROPERTIES ('transactional'='true');
INSERT INTO shop.orders PARTITION (region) VALUES
(1, 'Ä', 1.50, '2026-01-01 00:00:00', 'north'), (2, 'b', 2.50, '2026-01-02 12:30:00', 'north'),
(3, 'c', NULL, NULL, 'a/b:c=%'), (4, NULL, 4.00, '1969-12-31 23:59:59', NULL),
(5, 'e', 5.00, '2026-01-05 00:00:00', 'south');
UPDATE shop.orders SET item = 'updated' WHERE id = 2;
DELETE FROM shop.orders WHERE id = 5;

CREATE TABLE shop.changes (id int, item string, price decimal(10,2)) STORED AS ORC
TBLPROPERTIES ('transactional'='true');
INSERT INTO shop.changes VALUES (1, 'merged', 9.99), (7, 'new', 7.00);
MERGE INTO shop.orders USING shop.changes c ON orders.id = c.id
WHEN MATCHED THEN UPDATE SET item = c.item, price = c.price
WHEN NOT MATCHED THEN INSERT VALUES (c.id, c.item, c.price, NULL, 'merged');
INSERT OVERWRITE TABLE shop.changes SELECT id, item, price FROM shop.changes WHERE id = 7;
INSERT INTO shop.changes VALUES (8, 'later', 8.00);

CREATE TABLE shop.emptied (id int) STORED AS ORC TBLPROPERTIES ('transactional'='true');
INSERT INTO shop.emptied VALUES (1), (2);
TRUNCATE TABLE shop.emptied;
INSERT INTO shop.emptied VALUES (3);

CREATE TABLE shop.items (item string, weight double) STORED AS PARQUET
TBLPROPERTIES ('transactional'='true', 'transactional_properties'='insert_only');
INSERT INTO shop.items VALUES ('a', 1.0), ('b', 2.0);

CREATE TABLE shop.customers (id int NOT NULL DISABLE, name string DEFAULT 'nobody' DISABLE,
PRIMARY KEY (id) DISABLE NOVALIDATE) STORED AS ORC TBLPROPERTIES ('transactional'='true');
INSERT INTO shop.customers VALUES (1, 'Ann'), (2, 'Bo');
CREATE TABLE shop.bills (id int, customer int, CONSTRAINT of_customer FOREIGN KEY (customer)
REFERENCES shop.customers(id) DISABLE NOVALIDATE) STORED AS ORC TBLPROPERTIES ('transactional'='true');

CREATE VIEW shop.cheap AS SELECT id, item FROM shop.orders WHERE price < 5;
CREATE FUNCTION shop.shout AS 'org.apache.hadoop.hive.ql.udf.generic.GenericUDFUpper';
ANALYZE TABLE shop.orders PARTITION (region) COMPUTE STATISTICS FOR COLUMNS;
ANALYZE TABLE shop.customers COMPUTE STATISTICS FOR COLUMNS
"""

#: What both sides must answer with the same rows; ROW__ID included where there is one.
QUERIES = {
    "orders": "SELECT ROW__ID, * FROM {db}.orders",
    "changes": "SELECT ROW__ID, * FROM {db}.changes",
    "emptied": "SELECT ROW__ID, * FROM {db}.emptied",
    "items": "SELECT * FROM {db}.items",
    "customers": "SELECT ROW__ID, * FROM {db}.customers",
    "logs": "SELECT * FROM {db}.logs",
    "cheap": "SELECT * FROM {db}.cheap",
}


@dataclass(frozen=True)
class Replica:
    """A database and its replica under another name."""

    replication: Replication
    dump: DumpSummary
    aborted: int


@pytest.fixture(scope="module")
def replica(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Replica]:
    for statement in SOURCE.split(";"):
        hive_sql_source.execute(statement)
    make_external_table(source, hive_sql_source)
    root = tmp_path_factory.mktemp("bootstrap")
    with replication(
        source, target, spark, root, source_database=DATABASE, target_database="shop_copy"
    ) as site:
        aborted = abort_an_insert(site)
        dump = site.dump()
        site.load(dump.dump)
        yield Replica(site, dump, aborted)


def make_external_table(source: EmbeddedMetastore, sql: HiveSql) -> None:
    root = source.external_warehouse / "logs"
    sql.execute(
        "CREATE EXTERNAL TABLE shop.logs (line string) PARTITIONED BY (day string) STORED AS TEXTFILE "
        f"LOCATION 'file:{root}'"
    )
    for day, directory in (("1", root / "day=1"), ("2", source.external_warehouse / "logs of day 2")):
        directory.mkdir(parents=True)
        (directory / "data").write_text(f"line of {day}\nzweite Zeile\n", encoding="utf-8")
        sql.execute(f"ALTER TABLE shop.logs ADD PARTITION (day='{day}') LOCATION 'file:{directory}'")


def abort_an_insert(site: Replication) -> int:
    """Abort a write id whose rows lie in the table's directory; return it."""
    with site.source.client() as client:
        (txn_id,) = client.open_txns(1)
        component = types.LockComponent(
            type=types.LockType.SHARED_READ,
            level=types.LockLevel.TABLE,
            dbname=DATABASE,
            tablename="customers",
            operationType=types.DataOperationType.INSERT,
            isTransactional=True,
        )
        client.lock([component], txn_id=txn_id)
        write_id = client.allocate_table_write_ids(DATABASE, "customers", [txn_id])[txn_id]
        table: Any = client.get_table(DATABASE, "customers")
        location = Path(local_path(table.sd.location) or "")
        written = next(location.glob("delta_0000001_0000001_*"))
        shutil.copytree(written, location / f"delta_{write_id:07d}_{write_id:07d}_0000")
        client.abort_txns([txn_id])
    return write_id


@pytest.mark.parametrize("vectorized", [True, False])
@pytest.mark.parametrize("query", QUERIES)
def test_hive_reads_the_same_rows_on_both_sides(
    replica: Replica, hive_sql_source: HiveSql, hive_sql_target: HiveSql, query: str, vectorized: bool
) -> None:
    rows = []
    for sql, database in ((hive_sql_source, DATABASE), (hive_sql_target, "shop_copy")):
        sql.set("hive.vectorized.execution.enabled", str(vectorized).lower())
        # From the files, not from statistics.
        sql.set("hive.compute.query.using.stats", "false")
        rows.append(sorted(sql.execute(QUERIES[query].format(db=database)), key=repr))
    assert rows[0]
    assert rows[0] == rows[1]


def test_hive_calls_the_replicated_function(replica: Replica, target: EmbeddedMetastore) -> None:
    # An engine of its own: Hive reads the functions of its metastore when it starts.
    with HiveSql(target) as sql:
        assert sorted(sql.execute("SELECT shop_copy.shout(name) FROM shop_copy.customers")) == [
            ("ANN",),
            ("BO",),
        ]


def test_our_verification_finds_both_sides_equal(replica: Replica) -> None:
    report = replica.replication.verify(replica.dump.dump)
    assert report.differences == []
    rows = {table.name: (table.source_rows, table.target_rows) for table in report.tables}
    assert rows["orders"] == (5, 5)
    assert rows["customers"] == (2, 2)
    assert rows["logs"] == (4, 4)
    assert all(table.digest_equal for table in report.tables)
    # This process has read the small replica as well as Spark: the results were compared.
    assert [*Path(local_path(replica.dump.dump) or "").glob("verify/*-here/rows.jsonl")]


def test_hive_knows_where_the_replica_stands(replica: Replica, hive_sql_target: HiveSql) -> None:
    assert hive_sql_target.execute("REPL STATUS shop_copy") == [(str(replica.dump.event_id),)]


def test_the_aborted_rows_never_left_the_source(replica: Replica) -> None:
    site = replica.replication
    with site.target.client() as client:
        table: Any = client.get_table("shop_copy", "customers")
    directories = {path.name for path in Path(local_path(table.sd.location) or "").iterdir()}
    assert not any(f"_{replica.aborted:07d}" in name for name in directories)


def test_hive_answers_counts_from_the_replicated_statistics(
    replica: Replica, hive_sql_target: HiveSql
) -> None:
    hive_sql_target.set("hive.compute.query.using.stats", "true")
    plan = "\n".join(
        str(row[0]) for row in hive_sql_target.execute("EXPLAIN SELECT count(*) FROM shop_copy.customers")
    )
    assert "Map" not in plan, plan
    assert hive_sql_target.execute("SELECT count(*) FROM shop_copy.customers") == [("2",)]
    with replica.replication.target.client() as client:
        table: Any = client.get_table("shop_copy", "customers", with_column_stats=True)
    statistics = {statistics.colName: statistics.statsData for statistics in table.colStats.statsObj}
    assert statistics["id"].longStats.highValue == 2


def test_a_metastore_that_repeats_a_creation_gets_the_statistics(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It commits the table first, and finds that one when it repeats its call."""
    for statement in (
        "CREATE DATABASE repeated",
        "CREATE TABLE repeated.t (id int) STORED AS ORC TBLPROPERTIES ('transactional'='true')",
        "INSERT INTO repeated.t VALUES (7)",
        "ANALYZE TABLE repeated.t COMPUTE STATISTICS FOR COLUMNS",
    ):
        hive_sql_source.execute(statement)
    create_table = MetastoreClient.create_table

    def repeated(self: MetastoreClient, table: types.Table, **options: Any) -> None:
        bare = copy.copy(table)
        bare.colStats = None
        create_table(self, bare, **options)
        create_table(self, table, **options)

    monkeypatch.setattr(MetastoreClient, "create_table", repeated)
    with replication(
        source, target, spark, tmp_path, source_database="repeated", target_database="repeated_copy"
    ) as site:
        site.load(site.dump().dump)
        with site.target.client() as client:
            table: Any = client.get_table("repeated_copy", "t", with_column_stats=True)
    (statistics,) = table.colStats.statsObj
    assert (statistics.colName, statistics.statsData.longStats.highValue) == ("id", 7)
    assert "COLUMN_STATS" in table.parameters["COLUMN_STATS_ACCURATE"]


def test_partition_statistics_are_those_of_the_source(replica: Replica) -> None:
    site = replica.replication
    with site.source.client() as source, site.target.client() as target:
        names = source.list_partition_names(DATABASE, "orders")
        assert sorted(names) == sorted(target.list_partition_names("shop_copy", "orders"))
        assert "region=a%2Fb%3Ac%3D%25" in names
        expected = source.get_partitions_column_statistics(DATABASE, "orders", names)
        statistics = target.get_partitions_column_statistics("shop_copy", "orders", names)
    assert expected
    assert sorted_by_column(statistics) == sorted_by_column(expected)


def sorted_by_column(statistics: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: sorted(columns, key=lambda column: column.colName) for name, columns in statistics.items()}


def test_constraints_point_at_the_replica(replica: Replica) -> None:
    with replica.replication.target.client() as client:
        customers: Any = client.get_table_constraints("shop_copy", "customers")
        bills: Any = client.get_table_constraints("shop_copy", "bills")
    assert [key.column_name for key in customers.primaryKeys] == ["id"]
    assert customers.notNullConstraints
    assert [constraint.default_value for constraint in customers.defaultConstraints] == ["'nobody'"]
    (foreign,) = bills.foreignKeys
    assert (foreign.pktable_db, foreign.fktable_db, foreign.fk_name) == (
        "shop_copy",
        "shop_copy",
        "of_customer",
    )


def test_the_database_keeps_its_properties_and_gets_hives_marks(replica: Replica) -> None:
    with replica.replication.target.client() as client:
        database: Any = client.get_database("shop_copy")
    assert database.description == "a shop"
    assert database.parameters["owner.team"] == "data"
    assert database.parameters["repl.target.for"] == "true"
    assert database.parameters["repl.last.id"] == str(replica.dump.event_id)


def test_loading_again_changes_nothing(replica: Replica) -> None:
    site = replica.replication
    with site.target.client() as client:
        before = client.get_current_notification_event_id()
        site.load(replica.dump.dump)
        assert client.get_current_notification_event_id() == before


def test_hive_goes_on_writing_where_the_source_stopped(replica: Replica, hive_sql_target: HiveSql) -> None:
    """Promoted, the replica is an ordinary table: write ids go on after the source's."""
    with replica.replication.target.client() as client:
        before = client.get_valid_write_ids(["shop_copy.bills"])["shop_copy.bills"]
    hive_sql_target.execute("INSERT INTO shop_copy.bills VALUES (1, 1)")
    (row,) = hive_sql_target.execute("SELECT ROW__ID.writeid FROM shop_copy.bills")
    assert int(row[0] or 0) == (before.writeIdHighWaterMark or 0) + 1

"""Iceberg tables as remotes: Iceberg's own clients find them in the local metastore, by its Hive catalog.

They speak to metastores before Hive 4.0.1 only (``get_table``): the local one is a Hive 2.3. No release of
Iceberg runs on Spark 4.2 yet (1.12 for Spark 4.1 fails with ``IncompatibleClassChangeError``): the one
here is a 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.catalog.sql import SqlCatalog

from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.session import Remotes
from tests.support.iceberg_spark import IcebergSpark, iceberg_spark

NEAR = "remote_iceberg"


@pytest.mark.slow
def test_an_iceberg_table_by_its_path(hive_2: str, tmp_path: Path) -> None:
    place = f"file://{tmp_path}/lake/orders"
    theirs = SqlCatalog("theirs", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")
    rows = pa.table({"id": pa.array([1, 2], pa.int32()), "note": ["x", "y"]})
    theirs.create_namespace("d")
    table = theirs.create_table("d.orders", rows.schema, location=place)
    table.append(rows)
    with MetastoreClient(MetastoreSettings(uris=(hive_2,))) as near:
        near.create_database(types.Database(name=NEAR, locationUri=f"file:{tmp_path}/near"))
    local = HiveCatalog("local", uri=hive_2)
    with Remotes(MetastoreSettings(uris=(hive_2,)), database=NEAR) as remotes:
        remotes.run(f"CREATE REMOTE TABLE orders VIA 'iceberg' 'iceberg.table.path' = '{place}'")
        assert local.load_table(f"{NEAR}.orders").scan().to_arrow().sort_by("id") == rows
        # What was read is of the moment of the link, until that is refreshed.
        table.delete("id = 1")
        assert len(local.load_table(f"{NEAR}.orders").scan().to_arrow()) == 2
        remotes.run("REFRESH REMOTE TABLE orders")
        assert local.load_table(f"{NEAR}.orders").scan().to_arrow()["id"].to_pylist() == [2]
        remotes.run("DROP REMOTE TABLE orders")
    assert len(theirs.load_table("d.orders").scan().to_arrow()) == 1
    theirs.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("iceberg")


@pytest.fixture(scope="module")
def iceberg(hive_2: str, home: Path) -> Iterator[IcebergSpark]:
    """Spark with two Iceberg catalogs: ``lake``, of directories, and ``hive``, of the local metastore."""
    catalog = "org.apache.iceberg.spark.SparkCatalog"
    properties = {
        "spark.sql.catalog.lake": catalog,
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": f"file://{home}/lake",
        "spark.sql.catalog.lake.cache-enabled": "false",
        "spark.sql.catalog.hive": catalog,
        "spark.sql.catalog.hive.type": "hive",
        "spark.sql.catalog.hive.uri": hive_2,
        "spark.sql.catalog.hive.warehouse": f"file://{home}/hive",
        "spark.sql.catalog.hive.cache-enabled": "false",
        # A Hive 2.3 on Derby does not make the tables that locks are kept in.
        "spark.hadoop.iceberg.engine.hive.lock-enabled": "false",
    }
    with iceberg_spark(home, properties) as spark:
        yield spark


#: Snapshots, a schema and a partitioning that were changed between them, and rows deleted by position.
HISTORY = (
    """CREATE TABLE {0} (id INT, note STRING, amount DECIMAL(9, 2)) USING iceberg
       PARTITIONED BY (bucket(4, id)) TBLPROPERTIES ('format-version' = '2',
       'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')""",
    "INSERT INTO {0} VALUES (1, 'x', 1.50), (2, 'y', 2.50), (3, 'z', NULL)",
    "ALTER TABLE {0} ADD COLUMNS (seen TIMESTAMP_NTZ, tags ARRAY<STRING>)",
    "ALTER TABLE {0} RENAME COLUMN note TO remark",
    "ALTER TABLE {0} ALTER COLUMN id TYPE BIGINT",
    "ALTER TABLE {0} ADD PARTITION FIELD days(seen)",
    "INSERT INTO {0} VALUES (4000000000, 'ü', 4.50, timestamp_ntz'2026-01-02 03:04:05', array('b', NULL))",
    "DELETE FROM {0} WHERE id = 2",
    "UPDATE {0} SET remark = 'changed' WHERE id = 1",
)
COLUMNS = [
    ("id", "bigint"),
    ("remark", "string"),
    ("amount", "decimal(9,2)"),
    ("seen", "timestamp"),
    ("tags", "array<string>"),
]


@pytest.mark.slow
def test_iceberg_tables_that_spark_writes(hive_2: str, iceberg: IcebergSpark, home: Path) -> None:
    def read(table: str) -> list[dict[str, object]]:
        return iceberg.sql(f"SELECT * FROM {table} ORDER BY id")

    iceberg.sql("CREATE NAMESPACE hive.spark_wrote")
    iceberg.sql("CREATE NAMESPACE hive.spark_reads")
    for statement in HISTORY:
        iceberg.sql(statement.format("lake.d.orders"))
        iceberg.sql(statement.format("hive.spark_wrote.orders"))
    written = read("lake.d.orders")
    assert [row["id"] for row in written] == [1, 3, 4000000000]
    assert written[0]["remark"] == "changed"
    assert iceberg.sql("SELECT * FROM lake.d.orders.delete_files")
    local = HiveCatalog("local", uri=hive_2)
    with Remotes(MetastoreSettings(uris=(hive_2,)), database="spark_reads") as remotes:
        remotes.run(
            f"""CREATE REMOTE TABLE by_path VIA 'iceberg' 'iceberg.table.path' = '{home}/lake/d/orders';
            CREATE REMOTE DATABASE by_catalog CONNECTED TO spark_wrote
            VIA 'iceberg' 'iceberg.catalog.type' = 'hive' 'iceberg.catalog.uri' = '{hive_2}'"""
        )
        for name in ("spark_reads.by_path", "by_catalog.orders"):
            described = remotes.run(f"DESCRIBE {name}")[0].rows
            assert [tuple(row[:2]) for row in described[: len(COLUMNS)]] == COLUMNS
            assert read(f"hive.{name}") == written
            rows = local.load_table(name).scan().to_arrow().sort_by("id").to_pylist()
            assert [row["id"] for row in rows] == [row["id"] for row in written]
            assert [row["remark"] for row in rows] == [row["remark"] for row in written]
        # What was read is of the moment of the link, until that is refreshed.
        for table in ("lake.d.orders", "hive.spark_wrote.orders"):
            iceberg.sql(f"ALTER TABLE {table} DROP COLUMN tags")
            iceberg.sql(f"INSERT INTO {table} (id, remark) VALUES (5, 'later')")
        assert read("hive.spark_reads.by_path") == written
        remotes.run("REFRESH REMOTE TABLE by_path; REFRESH REMOTE DATABASE by_catalog")
        after = read("lake.d.orders")
        assert len(after) == len(written) + 1
        assert "tags" not in after[0]
        assert read("hive.spark_reads.by_path") == after
        assert read("hive.by_catalog.orders") == after
        remotes.run("DROP REMOTE TABLE by_path; DROP REMOTE DATABASE by_catalog")
    assert read("lake.d.orders") == after
    assert read("hive.spark_wrote.orders") == after
    iceberg.sql("DROP TABLE hive.spark_wrote.orders PURGE")
    iceberg.sql("DROP NAMESPACE hive.spark_wrote")
    iceberg.sql("DROP NAMESPACE hive.spark_reads")


@pytest.mark.slow
def test_what_icebergs_writers_do_through_a_link(hive_2: str, iceberg: IcebergSpark, home: Path) -> None:
    """Iceberg's writers do not know that it is a link; docs/remotes-writing.md has the remedy."""
    iceberg.sql("CREATE TABLE lake.w.t (id INT) USING iceberg")
    iceberg.sql("INSERT INTO lake.w.t VALUES (1), (2)")
    iceberg.sql("CREATE NAMESPACE hive.iceberg_writes")
    place = home / "lake" / "w" / "t"

    def files() -> set[Path]:
        return {path for path in place.rglob("*") if path.is_file() and not path.name.startswith(".")}

    with Remotes(MetastoreSettings(uris=(hive_2,)), database="iceberg_writes") as remotes:
        make = f"CREATE REMOTE TABLE t VIA 'iceberg' 'iceberg.table.path' = '{place}'"
        remotes.run(make)
        before = files()
        iceberg.sql("INSERT INTO hive.iceberg_writes.t VALUES (3)")
        assert files() > before
        # The remote never hears of the commit.
        assert len(iceberg.sql("SELECT * FROM lake.w.t")) == 2
        assert len(iceberg.sql("SELECT * FROM hive.iceberg_writes.t")) == 3
        remotes.run("DROP REMOTE TABLE t")
        assert files() > before
        iceberg.sql("ALTER TABLE lake.w.t SET TBLPROPERTIES ('gc.enabled' = 'false')")
        remotes.run(make)
        there = files()
        assert "gc" in iceberg.error("DROP TABLE hive.iceberg_writes.t PURGE").lower()
        assert files() == there
        iceberg.sql("ALTER TABLE lake.w.t SET TBLPROPERTIES ('gc.enabled' = 'true')")
        remotes.run("DROP REMOTE TABLE t")
        remotes.run(make)
        iceberg.sql("DROP TABLE hive.iceberg_writes.t PURGE")
        assert not files() & {path for path in before if path.suffix == ".parquet"}
    iceberg.sql("DROP NAMESPACE hive.iceberg_writes")

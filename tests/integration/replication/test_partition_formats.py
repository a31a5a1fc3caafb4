"""Tables whose partitions have different formats and columns, replicated and verified; Hive is the judge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import VerificationIncompleteError
from airflow_hive_federation.replication.repair import repair_replica
from airflow_hive_federation.spark.job import run_job
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.tables.read.reader import read_table
from tests.support.both_readers import read_both_ways
from tests.support.cycling import Scheduled, rows, scheduled
from tests.support.small_source import connected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SETUP = """
CREATE DATABASE mixed;
CREATE TABLE mixed.t (a int, b string, c bigint) PARTITIONED BY (p string) STORED AS TEXTFILE;
INSERT INTO mixed.t PARTITION (p = 'text') VALUES (1, '007', 12), (2, NULL, 6);
ALTER TABLE mixed.t SET FILEFORMAT PARQUET;
INSERT INTO mixed.t PARTITION (p = 'parquet') VALUES (3, 'x', 7), (4, NULL, 8), (5, 'y', 9);
ALTER TABLE mixed.t SET FILEFORMAT ORC;
INSERT INTO mixed.t PARTITION (p = 'orc') VALUES (6, 'z', 10);
CREATE TABLE mixed.odd (a int) PARTITIONED BY (p string) STORED AS TEXTFILE;
INSERT INTO mixed.odd PARTITION (p = 'text') VALUES (1);
ALTER TABLE mixed.odd SET FILEFORMAT AVRO;
INSERT INTO mixed.odd PARTITION (p = 'avro') VALUES (2);
CREATE TABLE mixed.ionly (a int) PARTITIONED BY (p string) STORED AS TEXTFILE
  TBLPROPERTIES ('transactional' = 'true', 'transactional_properties' = 'insert_only');
INSERT INTO mixed.ionly PARTITION (p = 'text') VALUES (1), (2);
ALTER TABLE mixed.ionly SET FILEFORMAT PARQUET;
INSERT INTO mixed.ionly PARTITION (p = 'parquet') VALUES (3);
CREATE TABLE mixed.wider (a int, b bigint) PARTITIONED BY (p string) STORED AS TEXTFILE;
INSERT INTO mixed.wider PARTITION (p = 'old') VALUES (1, 7);
ALTER TABLE mixed.wider CHANGE b b string;
ALTER TABLE mixed.wider ADD COLUMNS (c int);
INSERT INTO mixed.wider PARTITION (p = 'old') VALUES (2, '007', 3);
INSERT INTO mixed.wider PARTITION (p = 'new') VALUES (4, '007', 5)"""
# (An INSERT into a partition of another format gives it that of its table, and leaves its files as they are:
# Hive itself cannot read it then.)
CHANGES = """
INSERT INTO mixed.t PARTITION (p = 'orc') VALUES (7, 'later', 1);
INSERT INTO mixed.t PARTITION (p = 'more') VALUES (8, 'later', 1);
INSERT INTO mixed.ionly PARTITION (p = 'parquet') VALUES (9)"""
TABLES = ("t", "odd", "ionly", "wider")


def write(sql: HiveSql, statements: str) -> None:
    for statement in statements.split(";"):
        sql.execute(statement)


def read_by_spark(site: Scheduled, metastore: EmbeddedMetastore, table: str) -> list[Any]:
    with connected(metastore) as client:
        rows = read_table(site.spark, client, f"mixed.{table}").collect()
    texts = [tuple(None if value is None else str(value) for value in row) for row in rows]
    return sorted(texts, key=repr)


def directory(metastore: EmbeddedMetastore, name: str) -> Path:
    database, _, table = name.partition(".")
    with connected(metastore) as client:
        definition: Any = client.get_table(database, table)
    return Path(local_path(definition.sd.location) or "")


def test_each_partition_is_read_by_its_own_format(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    write(hive_sql_source, SETUP)
    with scheduled(source, target, spark, tmp_path, "mixed", reading=read_both_ways) as site:
        site.cycle()
        write(hive_sql_source, CHANGES)
        site.cycle()
        report = site.verify()
        report.raise_if_different()
        by_name = {table.name: table for table in report.tables}
        for name in TABLES:
            expected = rows(hive_sql_source, f"SELECT * FROM mixed.{name}")
            assert rows(hive_sql_target, f"SELECT * FROM mixed_copy.{name}") == expected
            if name == "odd":
                continue
            counts = by_name[name].source_rows, by_name[name].target_rows
            assert counts == (len(expected), len(expected)), name
            assert read_by_spark(site, source, name) == expected
        odd = by_name["odd"]
        assert (odd.source_rows, odd.target_rows, odd.digest_equal) == (None, None, True)
        assert "rows are not compared, digests of files are: mixed" in odd.note
        assert "AvroContainerInputFormat" in odd.note
        assert "p=avro" in odd.note

        differ(site, target)
        cannot_be_read(site, source)


def differ(site: Scheduled, target: EmbeddedMetastore) -> None:
    """Rows of a partition that is not of its table's format."""
    (file, *_) = sorted(directory(target, "mixed_copy.t").glob("p=text/0*"))
    before = file.read_bytes()
    file.write_bytes(before.replace(b"007", b"0\n7"))
    report = site.verify()
    assert report.failures == []
    assert {(each.table, each.what) for each in report.differences} == {("t", "file"), ("t", "rows")}
    file.write_bytes(before)


def cannot_be_read(site: Scheduled, source: EmbeddedMetastore) -> None:
    """A file that is damaged on the source, and so on the target."""
    (directory(source, "mixed.t") / "p=parquet" / "000009_0").write_bytes(
        b"PAR1 this is no Parquet file PAR1"
    )

    def run(plan: str, results: str) -> None:
        run_job(site.spark, "verify-replica", ["--plan", plan, "--results", results])

    with pytest.raises(VerificationIncompleteError, match=r"p=parquet/000009_0") as caught:
        site.cycle()
    assert [failure.partition(" cannot")[0] for failure in caught.value.failures] == [
        "t: its rows on the source",
        "t: its rows on the target",
    ]

    def copy(plan: str, outcomes: str) -> None:
        raise AssertionError("nothing differs, so nothing is copied")

    repaired = repair_replica(site.source, site.target, site.policy, run_copy=copy, run_verify=run)
    assert (repaired.repaired, repaired.tables, repaired.report.differences) == ([], [], [])
    assert len(repaired.report.failures) == 2
    assert "cannot be read" in "".join(repaired.result().failures)

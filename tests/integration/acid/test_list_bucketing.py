"""List-bucketed tables (``STORED AS DIRECTORIES``): their events hold maps with lists for keys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.wire import to_json
from tests.support.both_readers import read_both_ways
from tests.support.cycling import rows, scheduled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SETTINGS = {
    "hive.mapred.supports.subdirectories": "true",
    "mapreduce.input.fileinputformat.input.dir.recursive": "true",
}
SETUP = """
CREATE DATABASE skew;
CREATE DATABASE skew_beside;
CREATE TABLE skew.raw (k string, v string) STORED AS TEXTFILE;
INSERT INTO skew.raw VALUES ('484', 'x'), ('1', 'b'), ('484', 'c');
CREATE TABLE skew.two (k string, v string) SKEWED BY (k) ON ('484') STORED AS DIRECTORIES;
CREATE TABLE skew.p (k string, v string) PARTITIONED BY (d string)
  SKEWED BY (k, v) ON (('484', 'x'), ('1', 'b')) STORED AS DIRECTORIES;
CREATE TABLE skew_beside.quiet (id int);
INSERT INTO skew_beside.quiet VALUES (1)"""
CHANGES = """
INSERT OVERWRITE TABLE skew.two SELECT k, v FROM skew.raw;
INSERT OVERWRITE TABLE skew.two SELECT k, upper(v) FROM skew.raw;
INSERT OVERWRITE TABLE skew.p PARTITION (d = 'a') SELECT k, v FROM skew.raw;
INSERT OVERWRITE TABLE skew.p PARTITION (d = 'b') SELECT v, k FROM skew.raw;
ALTER TABLE skew.p PARTITION (d = 'a') RENAME TO PARTITION (d = 'c')"""
QUERIES = (
    "SELECT k, v FROM skew{suffix}.two",
    "SELECT v FROM skew{suffix}.two WHERE k = '484'",
    "SELECT k, v, d FROM skew{suffix}.p",
    "SELECT d FROM skew{suffix}.p WHERE k = '484' AND v = 'x'",
)


def write(sql: HiveSql, statements: str) -> None:
    for statement in statements.split(";"):
        sql.execute(statement)


def skewed_directories(client: MetastoreClient, database: str) -> dict[str, Any]:
    """Return the directories of skewed values in the metastore, below the database's directory."""
    directories: dict[str, Any] = {}
    described: Any
    for described in (client.get_table(database, "two"), *client.iter_partitions(database, "p")):
        root = str(described.sd.location)
        maps = to_json(described.sd.skewedInfo)["skewedColValueLocationMaps"]
        directories[root.rpartition("/")[2]] = sorted((key, value.removeprefix(root)) for key, value in maps)
    return directories


def test_list_bucketed_tables_are_replicated_and_disturb_no_other_policy(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    for sql in (hive_sql_source, hive_sql_target):
        for key, value in SETTINGS.items():
            sql.set(key, value)
    write(hive_sql_source, SETUP)

    def policy(database: str) -> Any:
        return scheduled(source, target, spark, tmp_path, database, reading=read_both_ways)

    with policy("skew") as site, policy("skew_beside") as other:
        site.cycle()
        other.cycle()
        write(hive_sql_source, CHANGES)
        assert not site.cycle().idle
        assert other.cycle().idle
        for query in QUERIES:
            expected = rows(hive_sql_source, query.format(suffix=""))
            assert expected, query
            assert rows(hive_sql_target, query.format(suffix="_copy")) == expected, query
        with site.source.client() as client, site.target.client() as copy:
            directories = skewed_directories(copy, "skew_copy")
            expected = skewed_directories(client, "skew")
        # In Hive a renamed partition names the directories of its former name; the replica names none.
        assert all("/d=a/" in where for _, where in expected.pop("d=c"))
        assert directories.pop("d=c") == []
        assert directories == expected
        assert directories["two"] == [(["484"], "/k=484")]
        assert site.verify().differences == []

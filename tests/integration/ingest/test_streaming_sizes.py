"""As large as it may get: many partitions at once, and a very long record."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import orc

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.storage.filesystem import local_path
from tests.support.sized_ingest import PARTITIONS, RECORD_BYTES, ROWS

pytestmark = pytest.mark.slow

DATABASE = "sized"
ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true', 'no_auto_compaction'='true')"


@pytest.fixture(scope="module")
def sql(hive_sql_source: HiveSql) -> HiveSql:
    hive_sql_source.execute(f"CREATE DATABASE {DATABASE}")
    return hive_sql_source


def grown(kind: str, uri: str, table: str) -> int:
    """Stream in a process of its own; return by how many bytes it has grown."""
    command = [sys.executable, "-m", "tests.support.sized_ingest", kind, uri, DATABASE, table]
    return int(subprocess.check_output(command, cwd=Path(__file__).parents[3]))


def test_thousands_of_partitions(sql: HiveSql, source: EmbeddedMetastore) -> None:
    sql.execute(f"CREATE TABLE {DATABASE}.wide (id int, msg string) PARTITIONED BY (p int) {ACID}")
    assert grown("partitions", source.uri, "wide") < 250 << 20
    with MetastoreClient(MetastoreSettings(uris=(source.uri,))) as client:
        assert len(client.list_partition_names(DATABASE, "wide")) == PARTITIONS
        root = Path(local_path(client.get_table(DATABASE, "wide").sd.location) or "")
    assert sum(orc.ORCFile(file).nrows for file in root.rglob("bucket_*")) == ROWS
    expected = [
        (str(number), str(ROWS // PARTITIONS), str(sum(range(number, ROWS, PARTITIONS))))
        for number in (0, 1_234, 3_999)
    ]
    assert (
        sql.execute(
            f"SELECT p, count(DISTINCT msg), sum(id) FROM {DATABASE}.wide WHERE p IN (0, 1234, 3999) "
            "GROUP BY p ORDER BY p"
        )
        == expected
    )


def test_a_record_of_100_mb(sql: HiveSql, source: EmbeddedMetastore) -> None:
    sql.execute(f"CREATE TABLE {DATABASE}.long (id int, msg string) CLUSTERED BY (id) INTO 2 BUCKETS {ACID}")
    # Of which the caller, who makes the record, has two. It was thirty before long texts were taken care of.
    assert grown("record", source.uri, "long") < 12 * RECORD_BYTES
    assert sql.execute(
        f"SELECT id, length(msg), substr(msg, -3) FROM {DATABASE}.long WHERE id <> 1 ORDER BY id"
    ) == [("2", str(RECORD_BYTES - 2), "end"), ("3", "5", "ort")]

"""Structured Streaming into a real table: exactly once over restarts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.spark.streaming_sink import HiveStreamingSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATABASE = "sunk"


class _KilledError(Exception):
    """Stands for the end of the driver, right behind the commit."""


@pytest.mark.slow
def test_a_query_that_is_restarted_neither_loses_nor_doubles(
    source: EmbeddedMetastore, hive_sql_source: HiveSql, spark: SparkSession, tmp_path: Path
) -> None:
    sql = hive_sql_source
    sql.execute(f"CREATE DATABASE {DATABASE}")
    sql.execute(
        f"CREATE TABLE {DATABASE}.t (id int, msg string) PARTITIONED BY (p string) CLUSTERED BY (id) "
        "INTO 2 BUCKETS STORED AS ORC TBLPROPERTIES ('transactional'='true')"
    )
    sink = HiveStreamingSink(MetastoreSettings(uris=(source.uri,)), f"{DATABASE}.t", name="q")
    arriving, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    arriving.mkdir()

    def run(function: Any) -> None:
        stream = spark.readStream.schema("id int, msg string, p string").csv(str(arriving))
        query = (
            stream.writeStream.foreachBatch(function)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def killed_behind_the_commit(rows: DataFrame, batch_id: int) -> None:
        sink(rows, batch_id)
        raise _KilledError

    (arriving / "1.csv").write_text("1,a,x\n2,b,y\n")
    run(sink)
    (arriving / "2.csv").write_text("3,c,x\n")
    with pytest.raises(Exception, match="_KilledError"):
        run(killed_behind_the_commit)
    run(sink)
    (arriving / "3.csv").write_text("4,d,\n")
    run(sink)
    assert [tuple(row) for row in sql.execute(f"SELECT * FROM {DATABASE}.t ORDER BY id")] == [
        ("1", "a", "x"),
        ("2", "b", "y"),
        ("3", "c", "x"),
        ("4", "d", "__HIVE_DEFAULT_PARTITION__"),
    ]
    committed = sink.committed()
    assert committed is not None
    assert committed.batch == 2
    checkpoint = tmp_path / "another"
    with pytest.raises(Exception, match=ConfigurationError.__name__):
        run(sink)

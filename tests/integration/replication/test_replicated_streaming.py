"""A table under streaming is replicated: batches of four, aborts in the middle, cycles while one is open."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.metastore import MetastoreSettings
from tests.support.incrementing import cycles

DATABASE = "streamed_source"


@pytest.mark.slow
def test_the_replica_of_a_streamed_table_is_equal(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    tmp_path: Path,
) -> None:
    hives = (hive_sql_source, hive_sql_target)
    with cycles(source, target, hives, tmp_path, source_database=DATABASE) as run:
        run.write(
            f"CREATE DATABASE {DATABASE}",
            f"CREATE TABLE {DATABASE}.t (id int, msg string) PARTITIONED BY (p int) CLUSTERED BY (id) "
            "INTO 2 BUCKETS STORED AS ORC TBLPROPERTIES ('transactional'='true')",
        )
        run.bootstrap()
        connection = (
            HiveStreamingConnection.new_builder()
            .with_database(DATABASE)
            .with_table("t")
            .with_record_writer(StrictDelimitedInputWriter(field_delimiter=","))
            .with_conf(MetastoreSettings(uris=(source.uri,)))
            .with_transaction_batch_size(4)
            .with_buffer_bytes(64)
            .connect()
        )
        for number in range(8):
            connection.begin_transaction()
            for row in range(6):
                connection.write(f"{number * 6 + row},text {number},{row % 2}")
            connection.flush()
            if number in {2, 5, 7}:
                connection.abort_transaction()
            else:
                connection.commit_transaction()
            if number in {1, 4}:
                (delta,) = _location(source).glob(f"p=0/delta_{number // 4 * 4 + 1:07d}_*")
                # As Hive's writer begins a file: nothing of it was committed yet.
                (delta / "bucket_00003").write_bytes(b"ORC and more")
                (delta / "bucket_00003_flush_length").write_bytes(bytes(8))
                run.cycle()
        connection.close()
        run.cycle()
        run.assert_equal("SELECT * FROM {db}.t")
        assert len(run.rows("SELECT id FROM {db}.t")[1]) == 5 * 6


def _location(source: EmbeddedMetastore) -> Path:
    return source.warehouse / f"{DATABASE}.db" / "t"

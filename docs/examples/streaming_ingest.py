"""The example of Hive's Streaming API: five buckets, two threads, static and dynamic partitions."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.metastore import MetastoreSettings

TABLE = """
CREATE TABLE testing.alerts (id int, msg string)
PARTITIONED BY (continent string, country string)
CLUSTERED BY (id) INTO 5 BUCKETS
STORED AS ORC TBLPROPERTIES ('transactional'='true')
"""


def stream(
    settings: MetastoreSettings, partition: Sequence[str], transactions: Sequence[Sequence[str]]
) -> None:
    writer = StrictDelimitedInputWriter.new_builder().with_field_delimiter(",").build()
    connection = (
        HiveStreamingConnection.new_builder()
        .with_database("testing")
        .with_table("alerts")
        .with_static_partition_values(partition)
        .with_agent_info("example-agent-1")
        .with_record_writer(writer)
        .with_conf(settings)
        .connect()
    )
    for records in transactions:
        connection.begin_transaction()
        for record in records:
            connection.write(record)
        connection.commit_transaction()
    connection.close()


static = [["1,val1", "2,val2"], ["3,val3", "4,val4"]]
dynamic = [["11,val11,Asia,China", "12,val12,Asia,India"], ["13,val13,Europe,Germany", "14,val14,Asia,India"]]
with (
    EmbeddedMetastore.start("ingest") as metastore,
    HiveSql(metastore) as sql,
    ThreadPoolExecutor() as threads,
):
    sql.execute("CREATE DATABASE testing")
    sql.execute(TABLE.strip())
    settings = MetastoreSettings(uris=(metastore.uri,))
    one = threads.submit(stream, settings, ["Asia", "India"], static)
    two = threads.submit(stream, settings, [], dynamic)
    one.result(), two.result()
    for row in sql.execute("SELECT * FROM testing.alerts ORDER BY id"):
        print(*row)

"""A program that writes and reads ACID tables by the Spark of its own Python, and prints the outcome as JSON.

Its arguments are the URI of a metastore, and a database that it creates.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

ORC = "org.apache.hadoop.hive.ql.io.orc.Orc"
BUCKETS = 3


def acid_table(database: str, name: str, *, buckets: int, keys: dict[str, str]) -> Any:
    """A transactional table, bucketed by texts if it has buckets."""
    from airflow_hive_federation.metastore.idl import types

    return types.Table(
        dbName=database,
        tableName=name,
        owner="tests",
        sd=types.StorageDescriptor(
            cols=[types.FieldSchema(name="id", type="int"), types.FieldSchema(name="name", type="string")],
            inputFormat=f"{ORC}InputFormat",
            outputFormat=f"{ORC}OutputFormat",
            numBuckets=buckets or -1,
            serdeInfo=types.SerDeInfo(serializationLib=f"{ORC}Serde", parameters={}),
            bucketCols=["name"] if buckets else [],
            sortCols=[],
            parameters={},
        ),
        partitionKeys=[types.FieldSchema(name=key, type=kind) for key, kind in keys.items()],
        parameters={"transactional": "true", "transactional_properties": "default", "bucketing_version": "2"},
        tableType="MANAGED_TABLE",
    )


def main(uri: str, database: str) -> None:
    import pyarrow
    from pyspark.sql import SparkSession

    from airflow_hive_federation.errors import SparkJobError
    from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
    from airflow_hive_federation.metastore.idl import types
    from airflow_hive_federation.spark.acid_tables import sql_with_frames
    from airflow_hive_federation.spark.needs import check_needs
    from airflow_hive_federation.tables.read.reader import read_table
    from airflow_hive_federation.tables.write.statements import append, delete

    with (
        MetastoreClient(MetastoreSettings(uris=(uri,))) as client,
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate() as spark,
    ):
        check_needs(spark, "verify-replica")
        client.create_database(types.Database(name=database, catalogName="hive"))
        table, days = f"{database}.orders", f"{database}.days"
        client.create_table(acid_table(database, "orders", buckets=BUCKETS, keys={}))
        client.create_table(acid_table(database, "days", buckets=0, keys={"day": "int"}))
        rows = spark.range(20).selectExpr("cast(id as int) id", "concat('n', id) name")
        written = append(spark, client, table, rows)
        filled = append(spark, client, days, rows.selectExpr("id", "name", "id % 2 day"))
        refusals = {}
        for column in ("id", "day"):
            # Spark 3.5 by itself makes a null of a text that is no number.
            values = {"id": "1", "name": "'n'", "day": "2"} | {column: f"'no {column}'"}
            bad = spark.range(1).selectExpr(*(f"{value} as {name}" for name, value in values.items()))
            try:
                append(spark, client, days, bad)
            except SparkJobError as error:
                refusals[column] = error.message
        gone = read_table(spark, client, table, row_ids=True).where("id < 5")
        deleted = delete(spark, client, table, gone)
        kept = read_table(spark, client, table, where="name = 'n7' or id > 16", row_ids=True)
        answer = sql_with_frames(
            spark,
            f"with o as (select id from {table}) select count(*) n, max(id) last from o",
            {(database, "orders"): kept},
            database,
        )
        report = {
            "spark": spark.version,
            "pyarrow": pyarrow.__version__,
            "inserted": written.inserted,
            "deleted": deleted.deleted,
            "refusals": refusals,
            "rows": sorted([row.id, row.name, row.ROW__ID.bucketid >> 16 & 0xFFF] for row in kept.collect()),
            "answer": [list(row) for row in answer.collect()],
            "filled": filled.inserted,
            "days": sorted(
                list(row) for row in read_table(spark, client, days).groupBy("day").count().collect()
            ),
        }
    print(json.dumps(report))


if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]
    main(*sys.argv[1:])

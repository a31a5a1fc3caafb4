"""A DAG that ingests a query and objects of a store; run as a program, it is run once."""

from __future__ import annotations

import json
from typing import Any

from airflow.providers.openlineage.sqlparser import DatabaseInfo
from airflow.providers.sqlite.hooks.sqlite import SqliteHook
from airflow.sdk import DAG

from airflow_hive_federation.operators.ingest import StreamingIngestOperator

# SQLite's hook has no names for OpenLineage; those of servers have.
SqliteHook.get_openlineage_database_info = lambda *_: DatabaseInfo(scheme="sqlite", authority="shop")
SqliteHook.get_openlineage_default_schema = lambda _: "main"

with DAG("ingesting", schedule=None) as dag:
    common: dict[str, Any] = {"table": "ingested.orders", "metastore_conn_id": "metastore"}
    query = StreamingIngestOperator(
        task_id="query",
        sql_conn_id="shop",
        sql="SELECT id AS a, item AS b, id + 100 AS key FROM orders WHERE id LIKE '%'",
        order_by=["key"],
        commit_records=2,
        **common,
    )
    objects = StreamingIngestOperator(
        task_id="objects",
        inputs=["s3://ingested/orders"],
        name="objects",
        commit_bytes=1,
        dead_letters="s3://ingested/letters.jsonl",
        **common,
    )
    query >> objects

if __name__ == "__main__":
    run = dag.test()
    print(
        json.dumps(
            {
                instance.task_id: instance.xcom_pull(task_ids=instance.task_id)
                for instance in run.get_task_instances()
            }
        )
    )

"""A DAG that ingests a query and objects of a store.

Run as a program, it runs the DAG for each line of its input, and prints what the tasks have returned.
"""

from __future__ import annotations

import json
import os
import sys
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
    # Airflow and OpenLineage log to the standard output.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for _ in sys.stdin:
        run = dag.test()
        returned = {
            instance.task_id: instance.xcom_pull(task_ids=instance.task_id)
            for instance in run.get_task_instances()
        }
        print(json.dumps(returned), file=answers, flush=True)

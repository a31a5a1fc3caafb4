"""Ingests files as they arrive: every few minutes, what was not ingested yet, each record exactly once."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_hive_federation.operators.ingest import StreamingIngestOperator

with DAG(
    dag_id="ingest_files",
    schedule=timedelta(minutes=5),
    catchup=False,
    # Two runs at once would read the same position, and the records of both would be committed.
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
    tags=["hive", "ingest"],
):
    StreamingIngestOperator(
        task_id="ingest",
        table="testing.alerts",
        # Names that begin with a time, so that new files come behind those that were ingested.
        inputs=["file:/data/alerts"],
        file_format="csv",
        dead_letters="/tmp/alerts-{{ ts_nodash }}.jsonl",  # noqa: S108
        dead_letter_limit=1000,
    )

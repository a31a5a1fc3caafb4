"""
## Ingest files into an ACID table

Every few minutes, it ingests the new files below a directory or prefix, each record exactly once. The table
holds the position, and the transaction that commits the records moves it, so a failed task is simply run
again. File names have to begin with a time, so that new files sort after those already ingested.

It needs a connection of type *Hive metastore (federation)*.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_hive_federation.operators.ingest import StreamingIngestOperator

with DAG(
    dag_id="ingest_files",
    dag_display_name="Ingest files into an ACID table",
    description="Streams files into a transactional table as they arrive, each record exactly once",
    schedule=timedelta(minutes=5),
    catchup=False,
    # Two concurrent runs would read the same position, and the second commit would be refused.
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
    tags=["hive", "ingest"],
    doc_md=__doc__,
    params={
        "table": Param("testing.alerts", type="string", title="Table", description="database.table"),
        "inputs": Param(
            "file:/data/alerts",
            type="string",
            title="Directory or prefix of the files",
            description="URI, with * in the last part if need be",
        ),
        "dead_letters": Param(
            "/var/lib/hive-federation/dead-letters",
            type="string",
            title="Directory of bad records",
            description="Takes a file for each run that meets records that cannot be read",
        ),
        "metastore_conn_id": Param(
            "hive_federation_default",
            type="string",
            title="Connection of the metastore",
            description="Type Hive metastore (federation)",
        ),
    },
) as dag:
    StreamingIngestOperator(
        task_id="ingest",
        table="{{ params.table }}",
        inputs=["{{ params.inputs }}"],
        file_format="csv",
        dead_letters="{{ params.dead_letters }}/{{ run_id }}.jsonl",
        dead_letter_limit=1000,
        metastore_conn_id="{{ params.metastore_conn_id }}",
    )

"""
## Ingest files into an ACID table

Every few minutes, it ingests the new files below a directory or prefix, each record exactly once. The table
holds the position, and the transaction that commits the records moves it, so a failed task is simply run
again. File names have to begin with a time, so that new files sort after those already ingested.

It needs a connection of type *Hive metastore (federation)*. Files arrive in the directory, or the prefix in
an object store, that the Airflow variable `hive_federation_ingest_root` names. Bad records go to the
directory of `hive_federation_dead_letters`. Both are not in the form: users who trigger a run may not choose
files of the worker.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_hive_federation.operators.ingest import StreamingIngestOperator

_ROOT = "{{ var.value.get('hive_federation_ingest_root', '/var/lib/hive-federation/arrived') }}"
_DEAD_LETTERS = "{{ var.value.get('hive_federation_dead_letters', '/var/lib/hive-federation/dead-letters') }}"

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
            "alerts",
            type="string",
            title="Files",
            description="A directory or file in that of the variable hive_federation_ingest_root; "
            "the last part may be a pattern with *",
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
        inputs=[f"{_ROOT}/{{{{ params.inputs }}}}"],
        file_format="csv",
        dead_letters=f"{_DEAD_LETTERS}/{{{{ run_id }}}}.jsonl",
        dead_letter_limit=1000,
        metastore_conn_id="{{ params.metastore_conn_id }}",
    )

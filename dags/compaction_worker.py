"""
## Compact ACID tables

Serves a metastore's compaction queue with Spark, so that a cluster without a Hive engine compacts.

Every quarter of an hour, it serves the requests that the metastore's initiator and `ALTER TABLE … COMPACT`
have put in the queue; on the target of a replication, its loads have. It needs a connection of type
`hive_federation` and one of the apache-spark provider.
Switch Hive's own workers off (`metastore.compactor.worker.threads=0`), or let them serve other pools.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_hive_federation.operators.compaction import CompactionWorkerOperator

with DAG(
    dag_id="compaction_worker",
    dag_display_name="Compact ACID tables",
    description="Serves a metastore's compaction queue with Spark",
    schedule=timedelta(minutes=15),
    catchup=False,
    max_active_runs=1,
    tags=["hive", "acid"],
    doc_md=__doc__,
    params={
        "metastore_conn_id": Param(
            "hive_source",
            type="string",
            title="Connection of the metastore",
            description="Type Hive metastore (federation)",
        ),
    },
) as dag:
    CompactionWorkerOperator(
        task_id="serve_queue",
        metastore_conn_id="{{ params.metastore_conn_id }}",
        until_empty=True,
        timeout_s=14 * 60,
    )

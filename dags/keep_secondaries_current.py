"""
## Keep copies in a secondary cluster current

Copies the latest partitions of a table to another cluster every hour. Partitions whose copy is current are
listed and not copied. Partitions that fall out of the window keep their copies until these are dropped;
once the primary changes, the router no longer uses them.

It needs the registry of clusters in the Airflow variable `hive_federation_clusters`, a connection of type
`hive_federation`, and the cluster's connection of the apache-spark provider.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_hive_federation.operators.clusters import CopyToClusterOperator

#: The condition, of the moment at which the run is due.
FIRST_DAY = "{{ params.key }} >= '{{ macros.ds_add(dag_run.run_after.date().isoformat(), -params.days) }}'"

with DAG(
    dag_id="keep_secondaries_current",
    dag_display_name="Keep copies in a secondary cluster current",
    description="Copies the latest partitions of a table to another cluster",
    schedule=timedelta(hours=1),
    catchup=False,
    # Two runs at once would copy the same files.
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
    tags=["hive", "clusters"],
    doc_md=__doc__,
    params={
        "metastore_conn_id": Param("hive_source", type="string", title="Connection of the metastore"),
        "table": Param("sales.orders", type="string", title="Table", description="database.table"),
        "cluster": Param("C2", type="string", title="Secondary cluster"),
        "key": Param("day", type="string", title="Partition key with the date"),
        "days": Param(30, type="integer", minimum=1, title="Days that are kept there"),
    },
):
    CopyToClusterOperator(
        task_id="copy",
        metastore_conn_id="{{ params.metastore_conn_id }}",
        table="{{ params.table }}",
        cluster="{{ params.cluster }}",
        where=FIRST_DAY,
    )

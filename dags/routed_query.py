"""
## Run a query where its tables are

Each statement runs in the cluster that holds all the data it reads, and that is the primary of the table it
writes. The task's log and its result contain the route. A statement that no cluster can run fails with an
error that names the missing tables and partitions per cluster.

It needs the registry of clusters in the Airflow variable `hive_federation_clusters`, a connection of type
`hive_federation`, and one connection of the apache-spark provider per cluster.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param

from airflow_hive_federation.operators.routed_sql import RoutedSqlOperator

with DAG(
    dag_id="routed_query",
    dag_display_name="Run a query where its tables are",
    description="Runs SQL by Spark in the cluster that holds the tables",
    schedule=None,
    catchup=False,
    tags=["hive", "clusters"],
    doc_md=__doc__,
    params={
        "metastore_conn_id": Param(
            "hive_source",
            type="string",
            title="Connection of the metastore",
            description="Type Hive metastore (federation)",
        ),
        "database": Param(
            "default",
            type="string",
            title="Database",
            description="Of the names without one in the statement",
        ),
        "sql": Param(
            "SELECT count(*) FROM orders WHERE day >= date_sub(current_date, 30)",
            type="string",
            format="multiline",
            title="Statements",
            description="Several with semicolons; USE CLUSTER name chooses a cluster",
        ),
    },
) as dag:
    RoutedSqlOperator(
        task_id="run",
        metastore_conn_id="{{ params.metastore_conn_id }}",
        database="{{ params.database }}",
        sql="{{ params.sql }}",
    )

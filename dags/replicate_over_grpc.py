"""
## Replicate a Hive database over gRPC

Replicates from a source behind a gRPC gateway, perhaps in another network, to an ordinary metastore. Only the
connection differs: operators and hooks are the same.

| Task | Action |
|---|---|
| **greet** | lists the databases through the gateway, and fails early if the gateway does not answer |
| **replicate** | bootstraps the copy or brings it forward, and verifies it |

The connection of the source names the gateway and the key file of a service account:

`{"conn_type": "hive_federation",
  "extra": {"uris": "grpc://gate.example.com:9084", "grpc_keyfile": "/etc/keys/etl.json"}}`

Workers need the extra `grpc`. The files of the tables do not pass through the gateway: Spark reads them at
their locations.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param, task

from airflow_hive_federation.operators.replication import replicate_database


@task(task_id="greet")
def greet(conn_id: str) -> list[str]:
    """Return the names of the source's databases."""
    from airflow_hive_federation.hooks.metastore import HiveMetastoreHook

    with HiveMetastoreHook(conn_id).client() as client:
        return client.list_databases()


with DAG(
    dag_id="replicate_over_grpc",
    dag_display_name="Replicate a Hive database over gRPC",
    description="Keeps a copy of a Hive database whose metastore is behind a gRPC gateway",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["hive", "replication", "grpc"],
    doc_md=__doc__,
    params={
        "database": Param("flights", type="string", title="Database", description="On the source"),
        "source_conn_id": Param(
            "hive_grpc",
            type="string",
            title="Connection of the gateway",
            description="Type Hive metastore (federation), with grpc:// URIs",
        ),
        "target_conn_id": Param(
            "hive_target",
            type="string",
            title="Connection of the target",
            description="Type Hive metastore (federation)",
        ),
        "spark_conn_id": Param(
            "spark_default",
            type="string",
            title="Connection of Spark",
            description="Without spark_default, Spark runs on the worker itself",
        ),
        "dump_root": Param(
            "/var/lib/hive-federation",
            type="string",
            title="Directory of dumps",
            description="URI that Airflow and Spark can reach: file:/shared, s3://bucket/dumps",
        ),
        "external_base": Param(
            "/var/lib/hive-federation/external",
            type="string",
            title="Directory of external tables",
            description="Where they land on the target: /ext_loc/x becomes <this directory>/ext_loc/x",
        ),
    },
) as dag:
    greet("{{ params.source_conn_id }}") >> replicate_database(
        {
            "name": "{{ params.target_conn_id ~ '.' ~ params.database }}",
            "source_database": "{{ params.database }}",
            "dump_root": "{{ params.dump_root }}",
            "external_base": "{{ params.external_base }}",
            # Not a parameter of a run: users who trigger one may not choose the worker's files to copy.
            "allowed_source_roots": "{{ var.value.get('hive_federation_source_roots', '') }}",
        },
        source_conn_id="{{ params.source_conn_id }}",
        target_conn_id="{{ params.target_conn_id }}",
        spark_conn_id="{{ params.spark_conn_id }}",
        group_id="replicate",
    )

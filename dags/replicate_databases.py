"""
## Replicate several Hive databases

Keeps databases in step between two Hive metastores, every quarter of an hour. Each database has its own
instance of the task group, whose tasks wait for no other database: a failure holds up no other database.

| Task | Action |
|---|---|
| **policies** | reads the policies from the Variable `hive_replications`, else from the parameter |
| **replicate** | runs a cycle per database: first a bootstrap, then increments |

The Variable is a JSON list of policies, each a mapping of its fields or the name of a database:

```json
["flights", {"source_database": "stock", "target_database": "stock_copy", "exclude_tables": "tmp_.*"}]
```

Every replicated table updates its asset, `hive://host:port/database/table` with the target's host and port:
a DAG that is scheduled on the asset starts when new data has arrived.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_hive_federation.operators.replications import ReplicationPoliciesOperator, replicate_databases

_DUMP_ROOT = "var.value.get('hive_federation_dump_root', '/var/lib/hive-federation')"
_EXTERNAL_BASE = "var.value.get('hive_federation_external_base', '/var/lib/hive-federation/external')"
# Not a parameter of a run: users who trigger one may not choose the worker's files to copy.
_SOURCE_ROOTS = "{{ var.value.get('hive_federation_source_roots', '') }}"

with DAG(
    dag_id="replicate_databases",
    dag_display_name="Replicate Hive databases",
    description="Keeps copies of several Hive databases in another metastore in step, and verifies them",
    schedule=timedelta(minutes=15),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["hive", "replication"],
    doc_md=__doc__,
    params={
        "databases": Param(
            ["flights"],
            type="array",
            items={"type": ["string", "object"]},
            title="Databases",
            description="On the source; the Variable hive_replications takes their place",
        ),
        "source_conn_id": Param(
            "hive_source",
            type="string",
            title="Connection of the source",
            description="Type Hive metastore (federation)",
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
            section="Details",
        ),
        "dump_root": Param(
            None,
            type=["null", "string"],
            title="Directory of dumps",
            section="Directories",
            description="URI that Airflow and Spark can reach: file:/shared, s3://bucket/dumps. "
            "Empty: the variable hive_federation_dump_root",
        ),
        "external_base": Param(
            None,
            type=["null", "string"],
            title="Directory of external tables",
            section="Directories",
            description="Where they land on the target: /ext_loc/x becomes <this directory>/ext_loc/x. "
            "Empty: the variable hive_federation_external_base",
        ),
    },
) as dag:
    policies = ReplicationPoliciesOperator(
        task_id="policies",
        policies="{{ var.value.get('hive_replications', '') or params.databases | tojson }}",
        defaults={
            "dump_root": f"{{{{ params.dump_root or {_DUMP_ROOT} }}}}",
            "external_base": f"{{{{ params.external_base or {_EXTERNAL_BASE} }}}}",
            "allowed_source_roots": _SOURCE_ROOTS,
        },
    )
    replicate_databases(
        policies.output,
        source_conn_id="{{ params.source_conn_id }}",
        target_conn_id="{{ params.target_conn_id }}",
        spark_conn_id="{{ params.spark_conn_id }}",
    )

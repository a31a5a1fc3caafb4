"""
## Replicate a Hive database

Keeps one database, ACID tables included, in step between two Hive metastores. The first run copies the
database, and each later run brings the changes since the last one; give the DAG a schedule for regular runs.

| Task | Action |
|---|---|
| **decide** | looks at the target: chooses a bootstrap if nothing is published there, else an increment |
| **drain** | records the source's last event, and waits for the transactions that are open at that moment |
| **dump** | writes a dump of the source: definitions, statistics, write ids, the files that readers see |
| **increment** | dumps the changes of the source since the target's last event |
| **load** | copies the files with Spark, creates or alters the tables, and publishes the database |
| **verify** | compares definitions and write ids of all tables, and files and rows of those that changed |

Simply clear a failed task: it continues from the point of the failure. A target database that this DAG did
not make is refused, unless *Adopt an existing database* is on.

It needs two connections of type *Hive metastore (federation)*, and one of type *Spark* (without
`spark_default`, Spark runs on the worker itself). If a run's form leaves the directories empty, the variables
`hive_federation_dump_root` and `hive_federation_external_base` define them, or else they are
`/var/lib/hive-federation` and `/var/lib/hive-federation/external`.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_hive_federation.operators.replication import replicate_database

_DUMP_ROOT = "var.value.get('hive_federation_dump_root', '/var/lib/hive-federation')"
_EXTERNAL_BASE = "var.value.get('hive_federation_external_base', '/var/lib/hive-federation/external')"
# Not a parameter of a run: users who trigger one may not choose the worker's files to copy.
_SOURCE_ROOTS = "{{ var.value.get('hive_federation_source_roots', '') }}"

with DAG(
    dag_id="replicate_database",
    dag_display_name="Replicate a Hive database",
    description="Keeps a copy of a Hive database, ACID tables included, in another metastore and verifies it",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["hive", "replication"],
    doc_md=__doc__,
    params={
        "database": Param("flights", type="string", title="Database", description="On the source"),
        "target_database": Param(
            None,
            type=["null", "string"],
            title="Name on the target",
            description="Empty: the same as on the source",
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
        "open_txn_timeout": Param(
            "1h",
            type="string",
            title="Wait for open transactions",
            section="Details",
            description="30s, 5m, 1h; what is still open then is aborted",
        ),
        "include_tables": Param(
            None,
            type=["null", "string"],
            title="Tables to replicate",
            section="Details",
            description="Regular expression that whole names match: orders|order_.*; empty: all",
        ),
        "exclude_tables": Param(
            None,
            type=["null", "string"],
            title="Tables to leave out",
            section="Details",
            description="Regular expression: tmp_.*; empty: none",
        ),
        "bandwidth_bytes_per_s": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Bandwidth, bytes per second",
            section="Details",
            description="Cap on copying; empty: none",
        ),
        "into_existing": Param(
            False,
            type="boolean",
            title="Adopt an existing database",
            section="Details",
            description="Take over a target database that is there already; identical files are not copied",
        ),
        "policy": Param(
            None,
            type=["null", "string"],
            title="Name of the policy",
            section="After a failover",
            description="As the DAG failover returned it; empty: connection and database of the target",
        ),
        "external_prefix": Param(
            None,
            type=["null", "string"],
            title="Directory of the source left out",
            section="After a failover",
            description="As the DAG failover returned it; empty: none",
        ),
    },
) as dag:
    replicate_database(
        {
            # Two targets need two policies.
            "name": "{{ params.policy or "
            "params.target_conn_id ~ '.' ~ (params.target_database or params.database) }}",
            "source_database": "{{ params.database }}",
            "target_database": "{{ params.target_database }}",
            "dump_root": f"{{{{ params.dump_root or {_DUMP_ROOT} }}}}",
            "external_base": f"{{{{ params.external_base or {_EXTERNAL_BASE} }}}}",
            "allowed_source_roots": _SOURCE_ROOTS,
            "external_prefix": "{{ params.external_prefix }}",
            "open_txn_timeout_s": "{{ params.open_txn_timeout }}",
            "bandwidth_bytes_per_s": "{{ params.bandwidth_bytes_per_s }}",
            "into_existing": "{{ params.into_existing }}",
            "include_tables": "{{ params.include_tables }}",
            "exclude_tables": "{{ params.exclude_tables }}",
        },
        source_conn_id="{{ params.source_conn_id }}",
        target_conn_id="{{ params.target_conn_id }}",
        spark_conn_id="{{ params.spark_conn_id }}",
        group_id="replicate",
    )

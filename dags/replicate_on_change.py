"""
## Replicate a Hive database when it changes

The triggerer watches the event log of the source. Each change (a commit, a table that is created or altered)
updates the asset `hive_source_flights`, on which this DAG is scheduled. Changes during a run start one more
run when it has ended. The watch begins after the event that the target shows, so a restart of the triggerer
loses no change.

Files of external tables change without events. Give the DAG an `AssetOrTimeSchedule` if the database has such
tables, or if a failed cycle shall be repeated before the next change.

Write the database and the connections into the first lines of this file: the triggerer does not know the
parameters of a run. `hive-federation replicate follow` does the same outside of Airflow, in seconds.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset, AssetWatcher, Param

from airflow_hive_federation.operators.replication import replicate_database
from airflow_hive_federation.triggers.replication import SourceEventTrigger

DATABASE = "flights"
SOURCE, TARGET = "hive_source", "hive_target"

_DUMP_ROOT = "var.value.get('hive_federation_dump_root', '/var/lib/hive-federation')"
_EXTERNAL_BASE = "var.value.get('hive_federation_external_base', '/var/lib/hive-federation/external')"
# Not a parameter of a run: users who trigger one may not choose the worker's files to copy.
_SOURCE_ROOTS = "{{ var.value.get('hive_federation_source_roots', '') }}"

changes = Asset(
    name=f"hive_source_{DATABASE}",
    watchers=[
        AssetWatcher(
            name=f"events_of_{DATABASE}",
            trigger=SourceEventTrigger(
                policy={
                    "name": f"{TARGET}.{DATABASE}",
                    "source_database": DATABASE,
                    # The watch writes no dump.
                    "dump_root": "/var/lib/hive-federation",
                },
                source_conn_id=SOURCE,
                target_conn_id=TARGET,
                poll_s=2,
            ),
        )
    ],
)

with DAG(
    dag_id="replicate_on_change",
    dag_display_name="Replicate a Hive database when it changes",
    description="Runs a cycle as soon as the source's event log shows a change",
    schedule=[changes],
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["hive", "replication"],
    doc_md=__doc__,
    params={
        "database": Param(DATABASE, type="string", title="Database", description="On the source"),
        "source_conn_id": Param(
            SOURCE,
            type="string",
            title="Connection of the source",
            description="Type Hive metastore (federation)",
        ),
        "target_conn_id": Param(
            TARGET,
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
    replicate_database(
        {
            "name": "{{ params.target_conn_id ~ '.' ~ params.database }}",
            "source_database": "{{ params.database }}",
            "dump_root": f"{{{{ params.dump_root or {_DUMP_ROOT} }}}}",
            "external_base": f"{{{{ params.external_base or {_EXTERNAL_BASE} }}}}",
            "allowed_source_roots": _SOURCE_ROOTS,
        },
        source_conn_id="{{ params.source_conn_id }}",
        target_conn_id="{{ params.target_conn_id }}",
        spark_conn_id="{{ params.spark_conn_id }}",
        group_id="replicate",
    )

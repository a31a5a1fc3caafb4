"""
## Keep copies in secondary clusters current

Copies changed partitions of tables to other clusters, by rules such as `last 30 days of sales.orders in C2`.
Every ten minutes, the task of each rule reads the metastore's notification events since its last run, and
compares the partitions that they name with their copies. It compares all partitions of the rule on the first
run, if events are missing, and once per day.

Partitions that leave the window keep their copies, unless the rule ends with `dropping older`: then the run
that compares all of them drops these copies. The files of dropped and replaced copies stay for a day, for
statements that were planned before; the next run that compares all partitions removes them. `hive-federation
cluster advise` prints the rules that past statements would have needed.

It needs the registry of clusters in the Airflow variable `hive_federation_clusters`, a connection of type
`hive_federation`, and one connection of the apache-spark provider per secondary cluster.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_hive_federation.operators.clusters import KeepCopiesOperator


@task
def rules(params: dict[str, Any]) -> list[str]:
    """Return the rules, each of which gets a task of its own."""
    return list(params["rules"])


with DAG(
    dag_id="keep_secondaries_current",
    dag_display_name="Keep copies in secondary clusters current",
    description="Copies what changed of tables to other clusters, by notification events",
    schedule=timedelta(minutes=10),
    catchup=False,
    # Two concurrent runs would copy the same files.
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
    tags=["hive", "clusters"],
    doc_md=__doc__,
    params={
        "metastore_conn_id": Param(
            "hive_source",
            type="string",
            title="Connection of the metastore",
            description="Type Hive metastore (federation)",
        ),
        "rules": Param(
            ["last 30 days of sales.orders in C2"],
            type="array",
            items={"type": "string"},
            minItems=1,
            title="Rules, one per line",
            description="last 30 days of database.table in C2; last 7 days of database.table by day in C2; "
            "all of database.table in C2; last 30 days of database.table in C2 dropping older",
        ),
        "compare_hours": Param(
            24,
            type="number",
            minimum=0,
            title="Hours after which all is compared, whatever the events name",
            description="0: each run compares all partitions of the rule",
        ),
    },
) as dag:
    KeepCopiesOperator.partial(
        task_id="keep",
        metastore_conn_id="{{ params.metastore_conn_id }}",
        compare_hours="{{ params.compare_hours }}",
        map_index_template="{{ task.rule }}",
    ).expand(rule=rules())

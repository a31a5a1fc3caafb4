"""
## Fail over a replicated Hive database

Moves the writers of a database to its replica, and makes the former source the replica. Nothing is copied
twice: the way back is increments.

| Task | What it does |
|---|---|
| **start** | marks the source as one that is being left, and waits for its open transactions |
| **increment**, **load** | the last cycle |
| **verify** | compares both sides: definitions, write ids, files' digests, the rows Spark counts |
| **approve** | waits for a person (*Required actions* in Airflow's UI) |
| **switch** | makes the source a replica, lets the target be written; returns the policy of the way back |
| **roll_back** | if the switch was not approved: the source may be written again |

Pause the DAG that replicates the database first, and stop who writes to the source: **switch** fails, and
changes nothing, if something was written since the last cycle. Then clear **increment** and what follows.
Afterwards, run the DAG that replicates with the policy that **switch** returned, and with the two
connections exchanged.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, TriggerRule

from airflow_hive_federation.operators.failover import (
    FailoverOperator,
    FailoverRollbackOperator,
    FailoverStartOperator,
)
from airflow_hive_federation.operators.replication import (
    IncrementalDumpOperator,
    ReplicationLoadOperator,
    VerifyReplicaOperator,
)

with DAG(
    dag_id="failover",
    dag_display_name="Fail over a replicated Hive database",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 1, "retry_delay": timedelta(seconds=30)},
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
        "source_conn_id": Param("hive_source", type="string", title="Connection of the source"),
        "target_conn_id": Param("hive_target", type="string", title="Connection of the target"),
        "spark_conn_id": Param("spark_default", type="string", title="Connection of Spark"),
        "dump_root": Param("/var/lib/hive-federation", type="string", title="Directory of dumps"),
        "external_base": Param(
            "/var/lib/hive-federation/external",
            type=["null", "string"],
            title="Directory of external tables",
        ),
        "open_txn_timeout": Param("10m", type="string", title="Wait for open transactions"),
    },
) as dag:
    ENDS: dict[str, Any] = {
        # As in the DAG that replicates: the policy's name is what marks the target.
        "policy": {
            "name": "{{ params.target_conn_id }}.{{ params.target_database or params.database }}",
            "source_database": "{{ params.database }}",
            "target_database": "{{ params.target_database }}",
            "dump_root": "{{ params.dump_root }}",
            "external_base": "{{ params.external_base }}",
            "open_txn_timeout_s": "{{ params.open_txn_timeout }}",
        },
        "source_conn_id": "{{ params.source_conn_id }}",
        "target_conn_id": "{{ params.target_conn_id }}",
    }
    SPARK = {"spark_conn_id": "{{ params.spark_conn_id }}"}
    start = FailoverStartOperator(task_id="start", **ENDS)
    increment = IncrementalDumpOperator(task_id="increment", **ENDS)
    load = ReplicationLoadOperator(task_id="load", dump=increment.output, **ENDS, **SPARK)
    verify = VerifyReplicaOperator(task_id="verify", dump=load.output, whole=True, **ENDS, **SPARK)
    approve = ApprovalOperator(
        task_id="approve",
        subject="Fail over {{ params.database }} to {{ params.target_conn_id }}?",
        body="The replica is verified. Writers have to move to {{ params.target_conn_id }} now.",
    )
    switch = FailoverOperator(task_id="switch", **ENDS)
    roll_back = FailoverRollbackOperator(task_id="roll_back", trigger_rule=TriggerRule.ALL_SKIPPED, **ENDS)
    start >> increment >> load >> verify >> approve >> switch >> roll_back

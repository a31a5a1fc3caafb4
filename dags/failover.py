"""
## Fail over a replicated Hive database

Moves the writers of a database to its replica, and makes the former source the replica. No file is copied
twice, because the way back consists of increments.

| Task | Action |
|---|---|
| **start** | marks the source as being left, and waits for its open transactions |
| **increment**, **load** | run the last cycle |
| **verify** | compares both sides: definitions, write ids, digests of files, row counts by Spark |
| **approve** | waits for a person (*Required actions* in Airflow's UI) |
| **switch** | makes the source a replica and the target writable; returns the policy of the way back |
| **roll_back** | makes the source writable again if the switch was not approved |

First pause the DAG that replicates the database, and stop all writers to the source: **switch** fails, and
changes nothing, if the source was written to since the last cycle. In that case clear **increment** and the
tasks after it. Afterwards, run the replicating DAG with the policy that **switch** returned (its name,
databases, directories), and with the two connections exchanged.

If a task before **switch** fails, the approval too, the source stays marked, and its writers stay stopped,
until a person decides: clear the failed task to go on, or give up by
`hive-federation replicate failover policy.toml --roll-back`.
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

_DUMP_ROOT = "var.value.get('hive_federation_dump_root', '/var/lib/hive-federation')"
_EXTERNAL_BASE = "var.value.get('hive_federation_external_base', '/var/lib/hive-federation/external')"
# Not a parameter of a run: users who trigger one may not choose the worker's files to copy.
_SOURCE_ROOTS = "{{ var.value.get('hive_federation_source_roots', '') }}"

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
        ),
        "dump_root": Param(
            None,
            type=["null", "string"],
            title="Directory of dumps",
            section="Directories",
            description="Empty: the variable hive_federation_dump_root",
        ),
        "external_base": Param(
            None,
            type=["null", "string"],
            title="Directory of external tables",
            section="Directories",
            description="Empty: the variable hive_federation_external_base",
        ),
        "open_txn_timeout": Param(
            "10m",
            type="string",
            title="Wait for open transactions",
            description="30s, 5m, 1h; what is still open then is aborted",
        ),
        "policy": Param(
            None,
            type=["null", "string"],
            title="Name of the policy",
            section="As it was replicated",
            description="Empty: as the DAG replicate_database calls it. (replicate_databases calls it as the "
            "database on the target.)",
        ),
        "external_prefix": Param(
            None,
            type=["null", "string"],
            title="Directory of the source left out",
            section="As it was replicated",
            description="To fail back: as this DAG returned it",
        ),
        "include_tables": Param(
            None,
            type=["null", "string"],
            title="Tables to replicate",
            description="Regular expression that whole names match; empty: all",
            section="As it was replicated",
        ),
        "exclude_tables": Param(
            None,
            type=["null", "string"],
            title="Tables to leave out",
            description="Regular expression that whole names match; empty: none",
            section="As it was replicated",
        ),
    },
) as dag:
    ENDS: dict[str, Any] = {
        # As in the DAG replicate_database, because the policy's name marks the target.
        "policy": {
            "name": "{{ params.policy or "
            "params.target_conn_id ~ '.' ~ (params.target_database or params.database) }}",
            "source_database": "{{ params.database }}",
            "target_database": "{{ params.target_database }}",
            "dump_root": f"{{{{ params.dump_root or {_DUMP_ROOT} }}}}",
            "external_base": f"{{{{ params.external_base or {_EXTERNAL_BASE} }}}}",
            "allowed_source_roots": _SOURCE_ROOTS,
            "external_prefix": "{{ params.external_prefix }}",
            "open_txn_timeout_s": "{{ params.open_txn_timeout }}",
            "include_tables": "{{ params.include_tables }}",
            "exclude_tables": "{{ params.exclude_tables }}",
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

"""A DAG of the operators, each written out; as a program, it runs once and prints the outcome as JSON."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from airflow_hive_federation.operators.compaction import CompactTableOperator
from airflow_hive_federation.operators.replication import (
    BootstrapDumpOperator,
    ReplicationLoadOperator,
    VerifyReplicaOperator,
)
from airflow_hive_federation.sensors.transactions import OpenTransactionsDrainSensor

errors: dict[str, str] = {}


def note_error(context: Any) -> None:
    errors[context["ti"].task_id] = str(context["exception"])


with DAG(
    "one_by_one",
    schedule=None,
    params={"database": Param("", type="string"), "root": Param("", type="string")},
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=1),
        "on_failure_callback": note_error,
    },
) as dag:
    policy = {
        "name": "{{ params.database }}",
        "source_database": "{{ params.database }}",
        "dump_root": "{{ params.root }}",
    }
    ends: dict[str, Any] = {"policy": policy, "source_conn_id": "source", "target_conn_id": "target"}
    drain = OpenTransactionsDrainSensor(
        task_id="drain", source_conn_id="source", database="{{ params.database }}", timeout="2s"
    )
    dump = BootstrapDumpOperator(task_id="dump", policy=policy, source_conn_id="source", start=drain.output)
    load = ReplicationLoadOperator(task_id="load", dump=dump.output, **ends)
    verify = VerifyReplicaOperator(task_id="verify", dump=load.output, **ends)
    compact = CompactTableOperator(
        task_id="compact", table="{{ params.database }}.lamps", metastore_conn_id="target"
    )
    drain >> dump >> load >> verify >> compact


def run_once(conf: dict[str, Any]) -> dict[str, Any]:
    """Run the DAG as Airflow does, triggers inline, and print the outcome of its tasks."""
    run = dag.test(run_conf=conf)
    return {
        task.task_id: {
            "state": task.state,
            "tries": task.try_number,
            "xcom": task.xcom_pull(task_ids=task.task_id),
            "error": errors.get(task.task_id),
        }
        for task in run.get_task_instances()
    }


if __name__ == "__main__":
    print(json.dumps(run_once(json.loads(sys.argv[1]))))

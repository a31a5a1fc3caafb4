"""A DAG of the operators, each written out.

As a program, it runs once per line of its input, and answers with the outcome of the tasks: both are JSON.
"""

from __future__ import annotations

import json
import os
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


def run_once(conf: dict[str, Any], variables: dict[str, str]) -> dict[str, Any]:
    """Run the DAG as Airflow does, triggers inline, and return the outcome of its tasks.

    :param variables: variables of the environment, with the connections for instance.
    """
    os.environ.update(variables)
    errors.clear()
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


def main() -> None:
    """Answer on the standard output; what Airflow prints there goes to the log of errors."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            print(json.dumps(run_once(**json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()

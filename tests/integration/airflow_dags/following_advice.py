"""Runs example DAGs of clusters as Airflow does, and prints the states and XComs of their tasks."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

DAGS = Path(__file__).parents[3] / "dags"
KEYS = ("return_value", "route", "copy", "_link_RouteLink", "_link_CopyLink")


def run_once(module: str, conf: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a DAG; return the state and the XComs of each task instance."""
    dag = import_module(module).dag
    run = dag.test(run_conf=conf)
    return [
        {
            "task": instance.task_id,
            "state": instance.state,
            "xcom": {
                key: instance.xcom_pull(task_ids=instance.task_id, key=key, map_indexes=instance.map_index)
                for key in KEYS
            },
        }
        for instance in run.get_task_instances()
    ]


if __name__ == "__main__":
    sys.path.insert(0, str(DAGS))
    print(json.dumps([run_once(module, conf) for module, conf in json.loads(sys.argv[1])]))

"""Runs example DAGs of clusters as Airflow does: per line of input, the states and XComs of the tasks."""

from __future__ import annotations

import json
import os
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


def main() -> None:
    """Answer each line with the task instances of its runs."""
    # Tasks print their logs, and their programs may read: only requests and answers go through the pipes.
    requests = os.fdopen(os.dup(sys.stdin.fileno()), encoding="utf-8")
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in requests:
        print(json.dumps([run_once(*run) for run in json.loads(line)]), file=answers, flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(DAGS))
    main()

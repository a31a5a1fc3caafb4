"""Times the imports that the provider adds to those of every DAG file."""

from __future__ import annotations

import subprocess
import sys
from statistics import median

from benchmarks.results import Result, seconds

_AIM_S = 0.3

#: A DAG file that uses the task SDK: what it imports is loaded, for `airflow.sdk` loads names when they are
#: asked for.
_BEFORE = "from airflow.sdk import DAG, BaseHook, BaseOperator, BaseSensorOperator, Param, TaskGroup, task"
_OURS = "import airflow_hive_federation.operators.replication"

_PROGRAM = f"""
import time
began = time.perf_counter()
{_BEFORE}
between = time.perf_counter()
{_OURS}
ended = time.perf_counter()
print(between - began, ended - between)
"""


def run(runs: int) -> Result:
    """Import in new interpreters, one after the other; medians."""
    measured = [_import() for _ in range(runs)]
    return seconds(
        "import",
        f"{_OURS}, after {_BEFORE}",
        ours_s=median(ours for _, ours in measured),
        peer="airflow.sdk",
        peer_s=median(before for before, _ in measured),
        at_most_s=_AIM_S,
    )


def _import() -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], check=True, stdout=subprocess.PIPE, text=True, timeout=300
    )
    before, ours = done.stdout.split()[-2:]
    return float(before), float(ours)

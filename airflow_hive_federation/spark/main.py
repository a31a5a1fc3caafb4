"""Runs a job under spark-submit: ``main.py [--report URI [--attempt ID]] JOB ARGUMENTS…``."""

from __future__ import annotations

import sys
from pathlib import Path

# Python puts the directory of the submitted file first on the path. There, modules of this package would hide
# other modules with the same name.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != _HERE]

if __name__ == "__main__":
    from airflow_hive_federation.spark.job import main

    sys.exit(main(sys.argv[1:]))

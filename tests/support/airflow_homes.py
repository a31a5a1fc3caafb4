"""Makes homes of Airflow without the seconds that a new database takes."""

from __future__ import annotations

import shutil
from pathlib import Path

from airflow_hive_federation.demo.local_airflow import DemoAirflow


def new_airflow(directory: Path, database: Path) -> DemoAirflow:
    """Return the Airflow of a directory, with a copy of a new database."""
    airflow = DemoAirflow(directory)
    shutil.copy(database, directory / "airflow" / database.name)
    return airflow

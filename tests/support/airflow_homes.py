"""Makes homes of Airflow without the seconds that a new database takes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from airflow_hive_federation.demo.local_airflow import DemoAirflow


def new_airflow(directory: Path, database: Path) -> DemoAirflow:
    """Return the Airflow of a directory, with a copy of a new database."""
    airflow = DemoAirflow(directory)
    # Making the database would have begun the log.
    airflow.log_path.touch()
    # SQLite copies what lies in the file's write-ahead log, too.
    with (
        closing(sqlite3.connect(database)) as made,
        closing(sqlite3.connect(directory / "airflow" / database.name)) as copied,
    ):
        made.backup(copied)
    return airflow

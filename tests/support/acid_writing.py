"""Makes the settings that a statement passes to its tasks, for tests without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow_hive_federation.tables.write.tasks import Writing


def writing_into(directory: Path, **settings: Any) -> Writing:
    """A statement that writes a bucketed table of one partition key.

    :param directory: gets the staging directory, which is the driver's part.
    """
    (directory / "staging").mkdir(exist_ok=True)
    usual: dict[str, Any] = {
        "staging": f"file:{directory}/staging",
        "storage_options": None,
        "purpose": "insert",
        "file_format": "acid",
        "partition_width": 1,
        "bucketed": True,
        "zone": "UTC",
        "compression": "zlib",
        "write_id": 5,
        "statement_id": 2,
    }
    return Writing(**{**usual, **settings})

"""Hive beside a cleaner."""

from __future__ import annotations

from airflow_hive_federation.embedded.sql import HiveSql, HiveSqlError, Row


def asked_again(hive: HiveSql, statement: str) -> list[Row]:
    """Run a statement; again if directories vanish while Hive lists them, though it needs none of those.

    (What it needs is not removed; but Hive lists obsolete directories, too, which the cleaner removes.)
    """
    try:
        return hive.execute(statement)
    except HiveSqlError as error:
        if "java.io.FileNotFoundException" not in str(error):
            raise
    return hive.execute(statement)

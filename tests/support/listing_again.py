"""Hive beside a cleaner."""

from __future__ import annotations

from airflow_hive_federation.embedded.sql import HiveSql, HiveSqlError, Row

#: The cleaner comes every second, and a statement may meet it more than once.
_REPETITIONS = 9


def asked_again(hive: HiveSql, statement: str) -> list[Row]:
    """Run a statement; again if directories vanish while Hive lists them, though it needs none of those.

    (What it needs is not removed; but Hive lists obsolete directories, too, which the cleaner removes.)
    """
    for _ in range(_REPETITIONS):
        try:
            return hive.execute(statement)
        except HiveSqlError as error:
            if "java.io.FileNotFoundException" not in str(error):
                raise
    return hive.execute(statement)

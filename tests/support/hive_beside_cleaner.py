"""Hive's SQL engine on a metastore whose cleaner removes directories meanwhile."""

from __future__ import annotations

from typing import Any

from airflow_hive_federation.embedded.sql import HiveSql, HiveSqlError, Row

#: The cleaner comes every second, and a statement may meet it more than once.
_REPETITIONS = 9


class HiveBesideCleaner(HiveSql):
    """Runs a statement again if directories vanish while Hive lists them, though it needs none of those.

    What it needs is not removed; but Hive also lists obsolete directories, which the cleaner removes. If it
    lacks what it needs, it lacks that each time.
    """

    def execute(self, sql: str, **options: Any) -> list[Row]:
        for _ in range(_REPETITIONS):
            try:
                return super().execute(sql, **options)
            except HiveSqlError as error:
                if "java.io.FileNotFoundException" not in str(error):
                    raise
        return super().execute(sql, **options)

"""Hive's SQL engine on a metastore whose cleaner removes directories meanwhile."""

from __future__ import annotations

from typing import Any

from airflow_hive_federation.embedded.sql import HiveSql, HiveSqlError, Row

#: The cleaner comes every second, and a statement may meet it more than once.
_REPETITIONS = 9


class HiveBesideCleaner(HiveSql):
    """Runs a statement again if directories that it does not read vanish while Hive lists them.

    Hive lists obsolete directories, too, and the cleaner removes only those. A statement that lacks a
    directory that it reads fails each time.
    """

    def execute(self, sql: str, **options: Any) -> list[Row]:
        for _ in range(_REPETITIONS):
            try:
                return super().execute(sql, **options)
            except HiveSqlError as error:
                if "java.io.FileNotFoundException" not in str(error):
                    raise
        return super().execute(sql, **options)

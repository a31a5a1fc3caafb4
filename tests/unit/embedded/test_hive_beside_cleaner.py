"""The tests' own engine, which runs a statement again if the cleaner has removed a directory meanwhile."""

from __future__ import annotations

from typing import Any, cast

import pytest

from airflow_hive_federation.embedded.sql import HiveSql, HiveSqlError, Row
from tests.support import hive_beside_cleaner
from tests.support.hive_beside_cleaner import HiveBesideCleaner

VANISHED = "java.io.FileNotFoundException: File file:/t/delta_0000001_0000001 does not exist"


class Engine:
    """Takes the place of Hive: some statements fail before one succeeds."""

    def __init__(self, *failures: str) -> None:
        self._failures = list(failures)
        self.statements: list[str] = []

    def execute(self, sql: str, **options: Any) -> list[Row]:
        assert options == {"timeout_s": 7.0}
        self.statements.append(sql)
        if self._failures:
            raise HiveSqlError(f"Hive failed on {sql!r}: {self._failures.pop(0)}")
        return [("1",)]


def run(engine: Engine) -> list[Row]:
    with pytest.MonkeyPatch.context() as patch:
        # A bound method, which does not get the engine that it replaces.
        patch.setattr(HiveSql, "execute", engine.execute)
        with HiveBesideCleaner(cast("Any", None)) as hive:
            return hive.execute("select 1", timeout_s=7.0)


def test_a_statement_that_lacks_a_directory_is_run_again() -> None:
    engine = Engine(VANISHED, VANISHED)
    assert run(engine) == [("1",)]
    assert engine.statements == ["select 1"] * 3


def test_a_statement_that_lacks_its_files_each_time_fails() -> None:
    engine = Engine(*[VANISHED] * 99)
    with pytest.raises(HiveSqlError, match="FileNotFoundException"):
        run(engine)
    assert len(engine.statements) == hive_beside_cleaner._REPETITIONS + 1


def test_other_errors_are_not_repeated() -> None:
    """A statement whose outcome is another one may have changed something."""
    engine = Engine("Table not found 't'")
    with pytest.raises(HiveSqlError, match="Table not found"):
        run(engine)
    assert engine.statements == ["select 1"]

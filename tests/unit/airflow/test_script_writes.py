"""A retry of a task does not run a script again of which statements have written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import LockTimeoutError, SparkJobError, StatementError
from airflow_hive_federation.hooks.compat import AirflowException, AirflowFailException
from airflow_hive_federation.operators.script_writes import ScriptWrites

QUERY: Any = SimpleNamespace(outputs=(), unanalysable=None)
UNKNOWN: Any = SimpleNamespace(outputs=(), unanalysable="a macro")


def insert(table: str) -> Any:
    return SimpleNamespace(outputs=(SimpleNamespace(table=table),), unanalysable=None)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "state" / "writes-task-1"


def a_try(record: Path | None, *statements: Any, fails: BaseException | None = None) -> None:
    writes = ScriptWrites(None if record is None else f"file:{record}")
    with writes.of_one_try():
        for statement in statements:
            writes.begin(statement)
        if fails is not None:
            raise fails


@pytest.mark.parametrize("statement", [insert("d.a"), UNKNOWN])
def test_a_retryable_error_after_a_write_is_permanent(statement: Any, record: Path) -> None:
    error = LockTimeoutError("Readers of d.t do not end.", remedy="Wait.")
    with pytest.raises(AirflowFailException, match=r"LockTimeoutError: Readers .* have written") as caught:
        a_try(record, statement, QUERY, fails=error)
    assert ("to d.a," in str(caught.value)) is bool(statement.outputs)
    # Somebody who clears the task runs the script again.
    a_try(record, statement)
    assert not record.exists()


def test_other_errors_stay_as_they_are(record: Path) -> None:
    for statement, error in [(QUERY, LockTimeoutError("Wait.")), (insert("d.a"), StatementError("No."))]:
        with pytest.raises(type(error)) as caught:
            a_try(record, statement, fails=error)
        assert caught.value is error
        assert not record.exists()


def test_the_try_after_a_kill_fails_once(record: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        a_try(record, insert("d.a"), insert("d.b"), insert("d.a"), fails=KeyboardInterrupt())
    assert record.stat().st_mode & 0o077 == 0
    with pytest.raises(SparkJobError, match=r"was killed; .* written to d\.a, d\.b, and") as caught:
        a_try(record, insert("d.a"))
    assert not caught.value.retryable
    a_try(record, insert("d.a"))
    assert not record.exists()


def test_a_kill_before_a_write_is_nothing(record: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        a_try(record, QUERY, fails=KeyboardInterrupt())
    a_try(record, insert("d.a"))
    # Without a task instance there is no name for a record.
    with pytest.raises(AirflowException):
        a_try(None, insert("d.a"), fails=LockTimeoutError("Wait."))

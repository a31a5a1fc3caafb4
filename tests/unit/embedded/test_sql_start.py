"""Hive's SQL engine, when its start or a statement takes too long, or its JVM writes a thread dump."""

from __future__ import annotations

import io
import queue
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.sql import HiveSql, _pass_on
from airflow_hive_federation.errors import EmbeddedError


@dataclass
class Metastore:
    directory: Path
    uri: str = "thrift://127.0.0.1:1"
    jdbc_url: str = "jdbc:derby://127.0.0.1:1/x"
    jdbc_password: str = ""


class SilentSql(HiveSql):
    """An engine whose process logs its first steps, and never answers."""

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log_path.open("a") as log:
            log.write("INFO reading the jars\n\n")
        return subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


def test_a_start_that_takes_too_long_ends_with_its_last_output(tmp_path: Path) -> None:
    (tmp_path / "sql.log").write_text("ERROR of the engine before\n")
    sql = SilentSql(Metastore(tmp_path), start_timeout_s=0.01)
    with pytest.raises(EmbeddedError, match=r"within 0 s: its start\. .* is 'INFO reading the jars'"):
        sql.execute("SELECT 1")
    assert sql.pid is None


def test_a_start_without_output_does_not_show_that_of_the_engine_before(tmp_path: Path) -> None:
    (tmp_path / "sql.log").write_text("ERROR of the engine before\n")
    sql = SilentSql(Metastore(tmp_path), start_timeout_s=0.01)
    sql._start = lambda: subprocess.Popen(  # type: ignore[method-assign]
        ["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    with pytest.raises(EmbeddedError, match="its log is empty"):
        sql.execute("SELECT 1")


def test_an_interrupted_statement_leaves_no_answer_to_the_next_one(tmp_path: Path) -> None:
    class Interrupted(queue.SimpleQueue[Any]):
        def get(self, *_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

    sql = SilentSql(Metastore(tmp_path))
    sql._answers = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        sql.execute("SELECT 1")
    assert sql.pid is None


def test_a_thread_dump_is_no_answer() -> None:
    """``kill -QUIT`` and debuggers ask for one; a JVM writes it to its standard output."""
    answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    _pass_on(io.BytesIO(b'Full thread dump\n\n"main" #1\n   at Main\n{"rows": [["1"]]}\n'), answers)
    assert [answers.get_nowait(), answers.get_nowait()] == [{"rows": [["1"]]}, None]

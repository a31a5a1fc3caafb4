"""Runs Hive's own SQL engine on an embedded metastore, as the reference for our reads and writes."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, Self

from airflow_hive_federation.embedded.configuration import core_site_xml, site_xml, sql_settings
from airflow_hive_federation.embedded.jars import driver_jars, sql_jars
from airflow_hive_federation.embedded.jvm import SQL_MAIN, clean_environment, java_command, launcher_classes
from airflow_hive_federation.embedded.process import last_line, telling_line
from airflow_hive_federation.errors import EmbeddedError
from airflow_hive_federation.runtime.cache import write_atomically
from airflow_hive_federation.runtime.java import find_java

Row = tuple[str | None, ...]
#: A start needs 5 s of two processors. Beside other programs it may need a hundred times as long, and a JVM
#: that fails ends at once, so a longer wait costs nothing.
_START_TIMEOUT_S = 600.0
#: A statement needs seconds, and beside other programs just as many times longer.
_STATEMENT_TIMEOUT_S = 900.0
_STOP_TIMEOUT_S = 10.0
_READ_LOG_BYTES = 100_000


class SqlMetastore(Protocol):
    """The interface of a metastore for the SQL engine."""

    @property
    def uri(self) -> str:
        """Return its Thrift URI."""

    @property
    def jdbc_url(self) -> str:
        """Return the JDBC URL of its database."""

    @property
    def jdbc_password(self) -> str:
        """Return the password of the database's user."""

    @property
    def directory(self) -> Path:
        """Return the directory of its warehouse, and of the engine's log and temporary files."""


@dataclass(frozen=True, kw_only=True)
class HiveAnswer:
    """The result of a statement.

    :param columns: names of the columns of a query; empty for other statements.
    :param rows: its rows in Hive's printed form, as :meth:`HiveSql.execute` returns them.
    """

    columns: tuple[str, ...]
    rows: list[Row]


class HiveSqlError(EmbeddedError):
    """The error for a statement that Hive refused or failed, with its ``sql`` and Hive's error ``code``."""


class HiveSql:
    """Hive's SQL engine in a JVM of its own, running Tez in that same JVM.

    It starts at the first statement (5 s) and runs one statement at a time; use one engine per metastore. As
    a context manager it closes at the end.

    :param metastore: the metastore that it uses.
    :param settings: Hive settings that replace ours.
    :param jars: further jars of its class path, those of a file system for instance.
    :param start_timeout_s: seconds that the start may take.
    """

    def __init__(
        self,
        metastore: SqlMetastore,
        *,
        settings: dict[str, str] | None = None,
        jars: Sequence[Path] = (),
        start_timeout_s: float = _START_TIMEOUT_S,
    ) -> None:
        self._metastore = metastore
        self._start_timeout_s = start_timeout_s
        self._logged_before = 0
        self._jars = tuple(jars)
        self._settings = {"hive.vectorized.execution.enabled": "true", **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()

    @property
    def log_path(self) -> Path:
        """Return the path of the engine's log."""
        return self._metastore.directory / "sql.log"

    @property
    def pid(self) -> int | None:
        """Return the process id of the JVM; ``None`` before the first statement and after :meth:`close`."""
        return None if self._process is None else self._process.pid

    def execute(self, sql: str, *, timeout_s: float = _STATEMENT_TIMEOUT_S) -> list[Row]:
        """Run one statement (without a semicolon at its end) and return its rows.

        Values have Hive's printed form: complex ones (``ROW__ID`` too) are JSON, binary ones are hex digits,
        and NULL is ``None``.

        :raises HiveSqlError: if Hive fails; it has Hive's message.
        """
        return self.query(sql, timeout_s=timeout_s).rows

    def query(self, sql: str, *, timeout_s: float = _STATEMENT_TIMEOUT_S) -> HiveAnswer:
        """Run one statement as :meth:`execute` does; return the names of its columns, too.

        :raises HiveSqlError: if Hive fails; it has Hive's message.
        """
        with self._lock:
            process = self._running()
            stdin = _pipe(process.stdin)
            try:
                stdin.write(json.dumps({"sql": sql}).encode() + b"\n")
                stdin.flush()
            except BrokenPipeError as error:
                raise self._died(sql) from error
            answer = self._answer(sql, timeout_s)
        if "error" in answer:
            raise HiveSqlError(
                f"Hive failed on {sql!r}: {answer['error']}",
                remedy=f"See {self.log_path}.",
                sql=sql,
                code=answer["code"],
            )
        return HiveAnswer(columns=tuple(answer["columns"]), rows=[tuple(row) for row in answer["rows"]])

    def set(self, name: str, value: str) -> None:
        """Change one of Hive's settings for the following statements.

        :raises HiveSqlError: if Hive has no such setting or refuses the value.
        """
        self.execute(f"SET {name}={value}")

    def close(self) -> None:
        """End the JVM; a second call does nothing, and a later statement starts a new JVM."""
        process, self._process = self._process, None
        if process is None:
            return
        # A dead engine cannot receive the rest of the buffer, which does not matter any more.
        with contextlib.suppress(BrokenPipeError):
            _pipe(process.stdin).close()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._logged_before = self.log_path.stat().st_size if self.log_path.exists() else 0
            self._process = self._start()
            self._answer("its start", self._start_timeout_s)
        return self._process

    def _start(self) -> subprocess.Popen[bytes]:
        directory = self._metastore.directory
        conf = directory / "sql-conf"
        java = find_java()
        kind = self._metastore.jdbc_url.split(":")[1]
        jars = [*sql_jars(java), *driver_jars(java, kind)]
        settings = sql_settings(
            directory,
            self._metastore.uri,
            self._metastore.jdbc_url,
            self._settings,
            password=self._metastore.jdbc_password,
        )
        write_atomically(conf / "hive-site.xml", site_xml(settings).encode(), private=True)
        write_atomically(conf / "core-site.xml", core_site_xml(settings).encode(), private=True)
        command = java_command(
            java,
            SQL_MAIN,
            [str(os.getpid())],
            class_path=[launcher_classes(java, jars), *jars, conf, *self._jars],
            argument_file=conf / "java.args",
            heap="1g",
        )
        with self.log_path.open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=directory,
                env=clean_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._answers = queue.SimpleQueue()
        reader = threading.Thread(
            target=_pass_on, args=(_pipe(process.stdout), self._answers), name="hive-sql", daemon=True
        )
        reader.start()
        return process

    def _answer(self, sql: str, timeout_s: float) -> dict[str, Any]:
        arrived = False
        try:
            answer = self._answers.get(timeout=timeout_s)
            arrived = True
        except queue.Empty:
            raise EmbeddedError(
                f"Hive did not finish within {timeout_s:.0f} s: {sql}. Its last output is "
                f"{last_line(self._logged())!r}.",
                remedy=f"See {self.log_path}.",
            ) from None
        finally:
            # A later answer would be taken for that of another statement; so after an interrupted wait, too.
            if not arrived:
                if self._process is not None:
                    self._process.kill()
                self.close()
        if answer is None:
            raise self._died(sql)
        return answer

    def _died(self, sql: str) -> EmbeddedError:
        self.close()
        reason = telling_line(self._logged())
        return EmbeddedError(
            f"Hive's SQL engine ended during {sql!r}: {reason}", remedy=f"See {self.log_path}."
        )

    def _logged(self) -> str:
        """Return the end of what this engine, and none before it, has written to the log."""
        with self.log_path.open("rb") as log:
            log.seek(max(self._logged_before, log.seek(0, os.SEEK_END) - _READ_LOG_BYTES))
            return log.read().decode("utf-8", "replace")


def _pass_on(stdout: IO[bytes], answers: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    """Put every answer into the queue, and ``None`` at the end of the output."""
    with stdout:
        for line in stdout:
            # A JVM also writes its thread dumps there (SIGQUIT).
            if line.startswith(b"{"):
                answers.put(json.loads(line))
    answers.put(None)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise EmbeddedError("the SQL engine was started without its pipes.")
    return pipe

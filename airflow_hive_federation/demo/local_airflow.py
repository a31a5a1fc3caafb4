"""Runs the demo's Airflow, with its own home and SQLite database, and with connections in the environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_hive_federation.errors import HiveFederationError, ReplicationError
from airflow_hive_federation.hooks.progress import EVENT_FIELD, LOG_EVENTS_VARIABLE
from airflow_hive_federation.progress.events import Event
from airflow_hive_federation.progress.reading import event_of

DAG_ID = "replicate_database"

#: Several processes write to one SQLite file; SQLite's default of five seconds is short on a busy machine.
SQLITE_ARGUMENTS = {"timeout": 60}

#: The number of lines of a failed task's error that are shown; the log has them all.
_ERROR_LINES = 12
#: Receives a task, and an event of its progress or another line of its log.
EntryListener = Callable[[str, Event | str], None]

#: Beginnings of log lines that Airflow writes in the name of a branching task.
_ABOUT_BRANCHES = ("Branch into ", "Following branch ", "Skipping tasks ")
_STARTING = re.compile(r"\[DAG TEST\] (starting|end task) task_id=(?:\w+\.)*(?P<task>\w+)")


@dataclass(frozen=True, kw_only=True)
class DagRun:
    """A run of a DAG, with the connections and variables that it finds in Airflow.

    :param conf: the parameters of the run.
    :param connections: the fields of connections, by their ids.
    :param variables: the Airflow variables.
    """

    conf: Mapping[str, Any]
    connections: Mapping[str, Mapping[str, Any]]
    variables: Mapping[str, str] = field(default_factory=dict)
    dag_id: str = DAG_ID


class DemoAirflow:
    """Runs commands of Airflow in processes of their own.

    :param directory: the directory of Airflow's home and log.
    """

    def __init__(self, directory: Path) -> None:
        self._home = directory / "airflow"
        self._home.mkdir(exist_ok=True)
        self.log_path = directory / "airflow.log"
        self.environment = {**_environment_without_airflow(os.environ), **self._settings()}

    def migrate(self) -> None:
        """Create Airflow's database.

        :raises HiveFederationError: the command failed.
        """
        log: list[str] = []
        if self._run(["db", "migrate"], log.append):
            raise HiveFederationError(
                "Airflow could not make its database:\n" + "".join(log[-_ERROR_LINES:]),
                remedy=f"Read {self.log_path}.",
                log_path=str(self.log_path),
            )

    def run_dag(self, run: DagRun, on_entry: EntryListener) -> dict[str, float]:
        """Run the DAG to its end as ``airflow dags test`` does, with triggers in the same process.

        :param on_entry: receives a task, and an event of its progress or another line of its log.
        :return: the seconds per task.
        :raises ReplicationError: a task failed; the message contains its error.
        """
        log = DagTestLog(on_entry)
        for conn_id, fields in run.connections.items():
            self.environment[f"AIRFLOW_CONN_{conn_id.upper()}"] = json.dumps(fields)
        for name, value in run.variables.items():
            self.environment[f"AIRFLOW_VAR_{name.upper()}"] = value
        code = self._run(["dags", "test", run.dag_id, "--conf", json.dumps(run.conf)], log.read)
        if code:
            raise ReplicationError(
                log.failure() or f"Airflow ended with exit code {code} before the DAG did.",
                remedy=f"The whole log is {self.log_path}.",
                log_path=str(self.log_path),
            )
        return log.seconds

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of an Airflow command."""
        return [sys.executable, "-m", "airflow", *arguments]

    def _run(self, arguments: list[str], on_line: Callable[[str], None]) -> int:
        with (
            self.log_path.open("a", encoding="utf-8") as log,
            subprocess.Popen(
                self.command(*arguments),
                env={**self.environment, "AIRFLOW__LOGGING__JSON_LOGS": "True", LOG_EVENTS_VARIABLE: "true"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            ) as process,
        ):
            for line in process.stdout or ():
                log.write(line)
                on_line(line)
        return process.returncode

    def _settings(self) -> dict[str, str]:
        return {
            "AIRFLOW_HOME": str(self._home),
            # Airflow starts its own commands by their names.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            "AIRFLOW__CORE__DAGS_FOLDER": str(example_dags()),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
            "AIRFLOW__DATABASE__LOAD_DEFAULT_CONNECTIONS": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": f"{__name__}.SQLITE_ARGUMENTS",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS_ASYNC": f"{__name__}.SQLITE_ARGUMENTS",
        }


class DagTestLog:
    """Reads the JSON log of ``airflow dags test``.

    :param on_entry: receives a task, and an event of its progress or another line of its log.
    """

    def __init__(self, on_entry: EntryListener) -> None:
        self._on_entry = on_entry
        self._task = ""
        self._errors: dict[str, str] = {}
        self._began: dict[str, float] = {}
        #: Seconds that the finished tasks took.
        self.seconds: dict[str, float] = {}

    def read(self, line: str) -> None:
        """Read one line; ignore a line that is no JSON."""
        try:
            entry = json.loads(line)
        except ValueError:
            return
        if not isinstance(entry, dict):
            return
        event, logger = str(entry.get("event", "")).strip(), str(entry.get("logger", ""))
        if match := _STARTING.match(event):
            self._note_task(match, entry)
        elif event == "Pausing task as DEFERRED.":
            self._on_entry(self._task, "deferred: Airflow's triggerer waits")
        elif event == "Task failed with exception":
            self._errors[self._task] = _error_text(entry)
            self._on_entry(self._task, "failed")
        elif EVENT_FIELD in entry:
            self._on_entry(self._task, event_of(entry[EVENT_FIELD]))
        elif _is_ours(logger) and not event.startswith(_ABOUT_BRANCHES):
            self._on_entry(self._task, event)

    def failure(self) -> str:
        """Return the failed task and the first lines of its error; empty if no task failed."""
        for task, text in self._errors.items():
            lines = text.splitlines()
            more = [f"… {len(lines) - _ERROR_LINES} more lines"] if len(lines) > _ERROR_LINES else []
            return f"Task {task} failed: " + "\n".join([*lines[:_ERROR_LINES], *more])
        return ""

    def _note_task(self, match: re.Match[str], entry: Mapping[str, object]) -> None:
        from datetime import datetime

        now = datetime.fromisoformat(str(entry["timestamp"]).replace("Z", "+00:00")).timestamp()
        task = match["task"]
        if match[1] == "starting":
            self._task = task
            self._began.setdefault(task, now)
            # A task that runs again has not failed yet.
            self._errors.pop(task, None)
        else:
            self.seconds[task] = now - self._began.get(task, now)


def example_dags() -> Path:
    """Return the directory of the example DAGs, in an installed package or in a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "example_dags"
    return inside if inside.is_dir() else package.parent / "dags"


def _is_ours(logger: str) -> bool:
    # Not the hooks, because they log all the output of spark-submit.
    return "airflow_hive_federation." in logger and "hooks" not in logger


def _error_text(entry: Mapping[str, Any]) -> str:
    """Return the text of the task's error; errors of other packages get their class name in front."""
    error = (entry.get("exception") or [{}])[0]
    kind, text = str(error.get("exc_type", "")), str(error.get("exc_value", "")).strip()
    return text if not kind or kind.startswith("Airflow") else f"{kind}: {text}"


def _environment_without_airflow(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without Airflow's settings: the demo must not touch the user's Airflow."""
    return {
        name: value
        for name, value in environ.items()
        # The command line sets a variable of Airflow's that begins with an underscore.
        if not name.startswith(("AIRFLOW_", "_AIRFLOW_")) or name.startswith("AIRFLOW_HIVE_FEDERATION_")
    }

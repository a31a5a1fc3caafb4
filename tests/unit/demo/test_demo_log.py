"""The demo's reading of Airflow's log, and its environment; test_demo.py lets Airflow write the log."""

from __future__ import annotations

import json
from typing import Any

from airflow_hive_federation.demo.local_airflow import DagTestLog, _environment_without_airflow
from airflow_hive_federation.progress.events import Event, FilesProcessed, TransactionsOpen
from airflow_hive_federation.progress.kinds import FileJob

SENSOR = "airflow.task.operators.airflow_hive_federation.sensors.transactions.OpenTransactionsDrainSensor"
HOOK = "airflow.task.hooks.airflow_hive_federation.hooks.pipeline_submit.PipelineSubmitHook"
OPEN = TransactionsOpen(database="shop", transactions=(3,))
COPIED = FilesProcessed(job=FileJob.COPY, files=1, all_files=2, size_bytes=3, all_bytes=4, bytes_per_s=5.0)
CLOCK = "2026-01-01T00:00:{:02}.5Z"


def entry(event: str, logger: str = "airflow.sdk.definitions.dag", second: int = 0, **facts: Any) -> str:
    return json.dumps({"timestamp": CLOCK.format(second), "event": event, "logger": logger, **facts}) + "\n"


def starting(task: str, second: int) -> str:
    return entry(f"[DAG TEST] starting task_id=replicate.{task} map_index=-1", second=second)


def ending(task: str, second: int) -> str:
    return entry(f"[DAG TEST] end task task_id=replicate.{task} map_index=-1", second=second)


def failing(kind: str, text: str) -> str:
    return entry("Task failed with exception", "task", exception=[{"exc_type": kind, "exc_value": text}])


def read(*lines: str) -> tuple[DagTestLog, list[tuple[str, Event | str]]]:
    pairs: list[tuple[str, Event | str]] = []
    log = DagTestLog(lambda task, text: pairs.append((task, text)))
    for line in lines:
        log.read(line)
    return log, pairs


def test_the_lines_of_the_tasks() -> None:
    log, lines = read(
        entry("Filling up the DagBag", "airflow.dag_processing"),
        starting("drain", 1),
        entry("shop: 1 transaction still open: 3", SENSOR, hive_federation_event=OPEN.to_json()),
        entry("1 difference", SENSOR),
        entry("Pausing task as DEFERRED. ", "task"),
        "no JSON at all\n",
        "[]\n",
        starting("drain", 5),
        ending("drain", 6),
        starting("load", 7),
        entry("Spark-Submit cmd: spark-submit …", HOOK),
        entry("copied 1 of 2 files", HOOK, hive_federation_event=COPIED.to_json()),
        ending("load", 9),
    )
    assert lines == [
        ("drain", OPEN),
        ("drain", "1 difference"),
        ("drain", "deferred: Airflow's triggerer waits"),
        ("load", COPIED),
    ]
    assert log.seconds == {"drain": 5.0, "load": 2.0}
    assert log.failure() == ""


def test_a_failed_task_with_the_first_lines_of_its_error() -> None:
    text = "VerificationError: differs:\n" + "\n".join(f"  table {n}" for n in range(20))
    log, pairs = read(starting("verify", 1), failing("AirflowFailException", text))
    assert pairs == [("verify", "failed")]
    lines = log.failure().splitlines()
    assert lines[0] == "Task verify failed: VerificationError: differs:"
    assert lines[-1] == "… 9 more lines"
    assert len(lines) == 13


def test_errors_that_are_not_ours_have_their_class() -> None:
    log, _ = read(starting("dump", 1), failing("ImportError", "no such name"))
    assert log.failure() == "Task dump failed: ImportError: no such name"


def test_a_task_that_is_tried_again_has_not_failed() -> None:
    log, _ = read(starting("dump", 1), failing("AirflowException", "gone"), starting("dump", 2))
    assert log.failure() == ""


def test_the_demo_has_no_setting_of_the_users_airflow() -> None:
    ours = {"PATH": "/bin", "AIRFLOW_HIVE_FEDERATION_CACHE": "/c"}
    others = {"AIRFLOW_HOME": "/a", "AIRFLOW__CORE__EXECUTOR": "x", "_AIRFLOW_PROCESS_CONTEXT": "server"}
    assert _environment_without_airflow({**ours, **others}) == ours

"""The time from a commit on the source until readers of the target see it, by a DAG that events start.

Airflow is a whole one (``airflow standalone``), and the DAG is the example ``replicate_on_change``: the
triggerer watches the source, and each run has the tasks of a cycle, with its verification.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from airflow_hive_federation.demo.local_airflow import DAG_ID, DemoAirflow, example_dags
from airflow_hive_federation.demo.ui import AirflowServer, airflow_server
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import MetastoreClient
from benchmarks.bootstrap import Setting
from benchmarks.contenders import client_settings, metastores
from benchmarks.following import commits, described, percentile
from benchmarks.increments import DATABASE, TABLES
from benchmarks.results import Result, seconds
from benchmarks.source_database import Scale, make_database

_PART = "replicate-dag"
_DAG = "replicate_on_change"
_DAG_PATH = f"/api/v2/dags/{_DAG}"
_PER_S = 1.0
_AIM_S = 60.0
#: Cycles per verification: as the example has it, and as a busy source has it.
_EVERY = (1, 10)
#: Where the example calls the task group.
_CALL = 'group_id="replicate",'


def run(setting: Setting) -> Iterator[Result]:
    """Measure the median and the 99th percentile, with a verification in each cycle and in some."""
    for_s = 120.0 if setting.scale == "full" else 60.0
    work = f"{_PER_S:g} commit of one row per second into {TABLES} ACID tables for {for_s / 60:g} minutes"
    with ExitStack() as stack:
        source, target = stack.enter_context(metastores(setting.directory, "source", "target"))
        with MetastoreClient(client_settings(source)) as client:
            make_database(
                client, source.warehouse, DATABASE, Scale(tables=TABLES, partitions=1, file_bytes=65)
            )
        server = stack.enter_context(airflow_server(_airflow(setting.directory)))
        _begin(server, source, target, setting)
        for every in _EVERY:
            _verify_each(server, setting.directory, every)
            before = len(_runs(server))
            setting.say(f"the commits begin; verification in one of {every} cycles")
            lags = [seen.lag_s for seen in commits(source, target, DATABASE, for_s, per_s=_PER_S)]
            setting.say(f"load of the machine: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
            setting.say(f"the DAG: {described(lags)}")
            server.wait(lambda: _is_idle(server), "The last run did not end.")
            for line in _timetable(server, _runs(server)[before:]):
                setting.say(line)
            verified = "each cycle" if every == 1 else f"one of {every} cycles"
            yield from _results(f"{work}, verification in {verified}", lags)


def _results(work: str, lags: Sequence[float]) -> Iterator[Result]:
    for percent, called in ((50, "median"), (99, "99th percentile")):
        yield seconds(
            _PART,
            f"{called} of {work}",
            ours_s=percentile(lags, percent),
            peer="the aim",
            peer_s=_AIM_S,
            at_most_s=_AIM_S,
        )


def _airflow(directory: Path) -> DemoAirflow:
    """Make an Airflow with the example DAG on the database of the measurement."""
    airflow = DemoAirflow(directory)
    (dags := directory / "dags").mkdir()
    # (The server is up when it knows the demo's DAG, which stays paused.)
    for name in (DAG_ID, _DAG):
        text = (example_dags() / f"{name}.py").read_text(encoding="utf-8")
        text = text.replace('DATABASE = "flights"', f'DATABASE = "{DATABASE}"')
        (dags / f"{name}.py").write_text(text, encoding="utf-8")
    airflow.environment["AIRFLOW__CORE__DAGS_FOLDER"] = str(dags)
    airflow.environment["HIVE_FEDERATION_SOURCE_ROOTS"] = "file:/"
    airflow.migrate()
    return airflow


def _verify_each(server: AirflowServer, directory: Path, every: int) -> None:
    """Let the DAG verify in one of so many cycles; return when Airflow has read its file."""
    path = directory / "dags" / f"{_DAG}.py"
    text = path.read_text(encoding="utf-8")
    assert text.count(_CALL) == 1
    if every == 1:
        return
    path.write_text(text.replace(_CALL, f"{_CALL} verify_every={every},"), encoding="utf-8")
    before = _dag(server)["last_parsed_time"]
    server.insist(f"/api/v2/parseDagFile/{_dag(server)['file_token']}", None, "PUT")
    server.wait(lambda: _dag(server).get("last_parsed_time", before) != before, "The DAG was not read again.")


def _begin(
    server: AirflowServer, source: EmbeddedMetastore, target: EmbeddedMetastore, setting: Setting
) -> None:
    """Let the source's events start the DAG; return when the first run has bootstrapped the target."""
    for conn_id, metastore in (("hive_source", source), ("hive_target", target)):
        server.connect(conn_id, {"conn_type": "hive_federation", "host": "127.0.0.1", "port": metastore.port})
    server.set_variable("hive_federation_dump_root", f"file:{setting.directory}/dumps")
    server.wait(lambda: bool(_dag(server)), "The DAG was not read.")
    server.insist(_DAG_PATH, {"is_paused": False}, "PATCH")
    # Airflow begins to watch the assets of a DAG when it reads the file of one that is not paused.
    server.insist(f"/api/v2/parseDagFile/{_dag(server)['file_token']}", None, "PUT")
    # (By the first events, Airflow starts one run or two.)
    server.wait(lambda: bool(_runs(server)) and _is_idle(server), "The bootstrap did not end.")
    states = [run["state"] for run in _runs(server)]
    if set(states) != {"success"}:
        raise RuntimeError(f"The runs that bootstrap the target ended so: {states}.")


def _dag(server: AirflowServer) -> Mapping[str, Any]:
    return _asked(server, _DAG_PATH)


def _runs(server: AirflowServer) -> list[Mapping[str, Any]]:
    answer = _asked(server, f"{_DAG_PATH}/dagRuns?limit=100&order_by=id")
    return [*answer.get("dag_runs", ())]


def _is_idle(server: AirflowServer) -> bool:
    runs = _runs(server)
    return bool(runs) and all(run["state"] in {"success", "failed"} for run in runs)


def _asked(server: AirflowServer, path: str) -> dict[str, Any]:
    """Return Airflow's answer; empty while it is too busy to give one."""
    try:
        return dict(server.request(path))
    except OSError:
        return {}


def _timetable(server: AirflowServer, runs: list[Mapping[str, Any]]) -> Iterator[str]:
    """Describe where the seconds of the runs went."""
    work, waits, whole = defaultdict(list), defaultdict(list), []
    for run in runs:
        before = _at(run["queued_at"])
        path = f"{_DAG_PATH}/dagRuns/{run['dag_run_id']}/taskInstances"
        tasks = [task for task in _asked(server, path)["task_instances"] if task["state"] == "success"]
        for task in sorted(tasks, key=lambda task: _at(task["start_date"])):
            name, began, ended = task["task_id"], _at(task["start_date"]), _at(task["end_date"])
            work[name].append(ended - began)
            waits[name].append(began - before)
            before = ended
        whole.append(_at(run["end_date"]) - _at(run["queued_at"]))
    states = json.dumps([run["state"] for run in runs])
    yield f"{len(runs)} runs ({states}), median {median(whole):.1f} s, longest {max(whole):.1f} s"
    for name in work:
        yield f"{name}: waits {median(waits[name]):.1f} s, works {median(work[name]):.1f} s"


def _at(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()

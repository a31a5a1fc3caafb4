"""Results are alone on stdout: Airflow, which logs there, does so on stderr while a command runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

#: A secrets backend that logs as Airflow's search of connections does, by both of its kinds of loggers.
BACKEND = """
import logging
import structlog
from airflow.secrets import BaseSecretsBackend

class Chatty(BaseSecretsBackend):
    def get_conn_value(self, conn_id, *args, **kwargs):
        logging.getLogger("airflow.models.connection").warning("A line of logging")
        structlog.get_logger("airflow.models.connection").warning("A line of structlog")
        structlog.get_logger("airflow.models.connection").info("A line that nobody needs")
        return '{"conn_type": "hive_federation", "host": "127.0.0.1", "port": 1}'
"""
REGISTRY = {
    "hive.cluster.properties": {"C1": {"fileSystem": "file:/c1", "jobTracker": "spark_c1"}},
    "hive.default.cluster.name": "C1",
}
#: Runs commands in one process, each between two lines of its own.
RUN = """
import json, sys
from airflow_hive_federation.cli.main import main
for line in json.loads(sys.argv[1]):
    print("begin", flush=True)
    print("begin", file=sys.stderr, flush=True)
    main(line)
"""


def test_every_command_leaves_stdout_to_results(tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text(BACKEND, encoding="utf-8")
    policy = tmp_path / "policy.toml"
    policy.write_text(
        'name = "p"\nsource = "one"\ntarget = "two"\nsource_database = "d"\ndump_root = "/dumps"\n',
        encoding="utf-8",
    )
    registry = tmp_path / "clusters.json"
    registry.write_text(json.dumps(REGISTRY), encoding="utf-8")
    commands = [
        ["doctor", "one", "--json"],
        ["replicate", "status", str(policy), "--json"],
        ["replicate", "plan", str(policy), "--json"],
        ["replicate", "run", str(policy), "--json"],
        ["sql", "SHOW REMOTES", "--metastore", "one", "--json"],
        ["remote", "list", "--metastore", "one", "--json"],
        ["cluster", "status", "--metastore", "one", "--clusters", str(registry), "--json"],
        ["compact", "d.t", "--metastore", "one", "--json"],
        ["ingest", "d.t", str(policy), "--metastore", "one", "--json"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(commands)],
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "AIRFLOW_HOME": str(tmp_path / "home"),
            "AIRFLOW__SECRETS__BACKEND": "chatty.Chatty",
        },
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    _, *results = done.stdout.split("begin\n")
    _, *logs = done.stderr.split("begin\n")
    assert len(results) == len(logs) == len(commands)
    for command, result, log in zip(commands, results, logs, strict=True):
        if command[0] == "doctor":
            assert [finding["name"] for finding in json.loads(result)][-1] == "reachable"
        else:
            assert result == "", command
        for line in ("A line of logging", "A line of structlog"):
            assert line in log, command
        assert "that nobody needs" not in log, command

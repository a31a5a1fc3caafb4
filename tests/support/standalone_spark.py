"""Standalone clusters of Spark: a master and workers in processes of their own."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from airflow_hive_federation.embedded.jvm import free_port
from airflow_hive_federation.embedded.process import end_server
from airflow_hive_federation.hooks.spark import spark_environment
from tests.support.spark_classes import driver_options


@contextmanager
def standalone_cluster(folder: Path, *, workers: int) -> Iterator[str]:
    """Yield the URL of the master of as many workers, each of which has one core and 1 GiB."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        running.enter_context(
            daemon("master.Master", ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"], folder)
        )
        wait_for_text(folder / "master.Master.log", "New state: ALIVE")
        for number in range(1, workers + 1):
            work = folder / f"work{number}"
            arguments = ["--cores", "1", "--memory", "1g", "--work-dir", str(work), "--webui-port", "0", url]
            log = f"worker.Worker{number}"
            running.enter_context(daemon("worker.Worker", ["--host", "127.0.0.1", *arguments], folder, log))
            wait_for_text(folder / f"{log}.log", "Successfully registered")
        yield url


@contextmanager
def daemon(name: str, arguments: list[str], folder: Path, log: str = "") -> Iterator[None]:
    settings = {"SPARK_NO_DAEMONIZE": "1", "SPARK_DAEMON_JAVA_OPTS": driver_options()}
    environment = spark_environment(os.environ, settings, {}, local=True)
    command = [f"{environment['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments]
    with (folder / f"{log or name}.log").open("wb") as output:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=output)
        try:
            yield
        finally:
            end_server(process, timeout_s=60)


def wait_for_text(path: Path, text: str) -> None:
    deadline = time.monotonic() + 90
    while text not in path.read_text(errors="replace"):
        assert time.monotonic() < deadline, f"{path.name} never said {text!r}:\n{path.read_text()[-2000:]}"
        time.sleep(0.1)

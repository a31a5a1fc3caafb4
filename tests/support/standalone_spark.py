"""Standalone clusters of Spark: a master and workers in processes of their own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from airflow_hive_federation.embedded.jvm import free_port
from airflow_hive_federation.embedded.process import end_server
from airflow_hive_federation.hooks.spark import spark_environment
from tests.support.documents import ROOT
from tests.support.spark_classes import QUICK, driver_options

#: Python and Spark of workers with roots of their own: those of the tests, under other paths.
FAR_PYTHON = "/mnt/python/bin/python"
_PYTHON, _SPARK = "/mnt/python", "/mnt/spark"


@contextmanager
def standalone_cluster(folder: Path, *, workers: int, apart: bool = False) -> Iterator[str]:
    """Yield the URL of the master of as many workers, each of which has one core and 1 GiB.

    :param apart: the workers have roots of their own, without the checkout and all temporary files, so that
        they share no disk with the tests; Python and Spark have other paths there.
    """
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        running.enter_context(
            daemon("master.Master", ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"], folder)
        )
        wait_for_text(folder / "master.Master.log", "New state: ALIVE")
        logs = [f"worker.Worker{number}" for number in range(1, workers + 1)]
        for number, log in enumerate(logs, 1):
            work = f"/mnt/work{number}" if apart else str(folder / f"work{number}")
            arguments = ["--cores", "1", "--memory", "1g", "--work-dir", work, "--webui-port", "0", url]
            started = daemon("worker.Worker", ["--host", "127.0.0.1", *arguments], folder, log, apart=apart)
            running.enter_context(started)
        for log in logs:
            wait_for_text(folder / f"{log}.log", "Successfully registered")
        yield url


@contextmanager
def daemon(
    name: str, arguments: list[str], folder: Path, log: str = "", *, apart: bool = False
) -> Iterator[None]:
    settings = {"SPARK_NO_DAEMONIZE": "1", "SPARK_DAEMON_JAVA_OPTS": driver_options()}
    environment = spark_environment(os.environ, settings, {}, local=True)
    home = Path(environment["SPARK_HOME"])
    command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments]
    if apart:
        command, environment = in_own_root(command, environment)
    with (folder / f"{log or name}.log").open("wb") as output:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=output)
        try:
            yield
        finally:
            end_server(process, timeout_s=60)


def in_own_root(command: Sequence[str], environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return a command of Spark's, and its environment, in mounts of its own."""
    home = environment["SPARK_HOME"]
    steps = [
        ["mount", "-t", "tmpfs", "none", "/mnt"],
        ["mkdir", _PYTHON, _SPARK],
        ["mount", "--bind", home, _SPARK],
        ["mount", "--bind", sys.prefix, _PYTHON],
        # Otherwise, Python would also find pyspark among its packages.
        ["mount", "-t", "tmpfs", "none", home.replace(sys.prefix, _PYTHON)],
        *(["mount", "-t", "tmpfs", "none", hidden] for hidden in (str(ROOT), tempfile.gettempdir())),
        ["cd", "/mnt"],
        ["exec", *(part.replace(home, _SPARK) for part in command)],
    ]
    kept = ("JAVA_HOME", "PATH", "SPARK_LOCAL_IP", "SPARK_NO_DAEMONIZE")
    own = {**{name: environment[name] for name in kept}, "SPARK_HOME": _SPARK}
    # Users other than root need a user namespace.
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    script = "\n".join(map(shlex.join, steps))
    return [*unshare, "sh", "-ec", script], {**own, "SPARK_DAEMON_JAVA_OPTS": QUICK}


def wait_for_text(path: Path, text: str) -> None:
    deadline = time.monotonic() + 90
    while text not in path.read_text(errors="replace"):
        assert time.monotonic() < deadline, f"{path.name} never said {text!r}:\n{path.read_text()[-2000:]}"
        time.sleep(0.1)

"""The copy job on a standalone cluster: a master and two workers in processes of their own.

The executors run a Python without site-packages: what a task needs comes with the job or is Python's own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.hooks.spark import SparkPipelineHook, spark_environment
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.storage.digests import digest_file
from airflow_hive_federation.storage.plan_files import read_outcomes, write_plan

pytestmark = pytest.mark.slow

FILES = 40
BARE_PYTHON = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("cluster")
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        running.enter_context(
            daemon("master.Master", ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"], folder)
        )
        wait_for_text(folder / "master.Master.log", "New state: ALIVE")
        for number in (1, 2):
            work = folder / f"work{number}"
            arguments = ["--cores", "1", "--memory", "1g", "--work-dir", str(work), "--webui-port", "0", url]
            log = f"worker.Worker{number}"
            running.enter_context(daemon("worker.Worker", ["--host", "127.0.0.1", *arguments], folder, log))
            wait_for_text(folder / f"{log}.log", "Successfully registered")
        yield url


@pytest.mark.timeout(240)
def test_copy_on_two_workers(master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CLUSTER", json.dumps({"conn_type": "spark", "host": master}))
    items = make_items(tmp_path)
    plan, outcomes = f"file:{tmp_path}/copy_plan.jsonl", f"file:{tmp_path}/outcomes"
    write_plan(plan, items)
    lost = Path(items[0].source.removeprefix("file:"))
    content = lost.read_bytes()
    lost.unlink()

    hook = SparkPipelineHook(
        "spark_cluster",
        conf={
            "spark.executor.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            # Slow attempts are run twice: the copies must not mind.
            "spark.speculation": "true",
        },
        env={
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_PYTHON": str(BARE_PYTHON),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    )
    with pytest.raises(FileVanishedError) as caught:
        hook.copy_runner()(plan, outcomes)
    assert caught.value.path == items[0].source
    assert len(read_outcomes(outcomes)) == FILES - 1

    lost.write_bytes(content)
    result = hook.submit("copy-files", ["--plan", plan, "--outcomes", outcomes])
    assert (result["recorded"], result["copied"]) == (FILES - 1, 1)
    recorded = read_outcomes(outcomes)
    for item in items:
        assert (
            digest_file(item.source).digest == digest_file(item.target).digest == recorded[item.target].digest
        )
    assert not list(tmp_path.rglob("._copy_*"))


def make_items(folder: Path) -> list[CopyItem]:
    items = []
    for number in range(FILES):
        source = folder / "s" / f"bucket_{number:05}"
        source.parent.mkdir(exist_ok=True)
        source.write_bytes(os.urandom(50_000 + number))
        target = f"file:{folder}/t/p={number % 3}/bucket_{number:05}"
        items.append(CopyItem(source=f"file:{source}", target=target, size_bytes=50_000 + number))
    return items


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def daemon(name: str, arguments: list[str], folder: Path, log: str = "") -> Iterator[None]:
    environment = spark_environment(os.environ, {"SPARK_NO_DAEMONIZE": "1"}, {}, local=True)
    command = [f"{environment['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments]
    with (folder / f"{log or name}.log").open("wb") as output:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=output)
        try:
            yield
        finally:
            process.terminate()
            process.wait(timeout=60)


def wait_for_text(path: Path, text: str) -> None:
    deadline = time.monotonic() + 90
    while text not in path.read_text(errors="replace"):
        assert time.monotonic() < deadline, f"{path.name} never said {text!r}:\n{path.read_text()[-2000:]}"
        time.sleep(0.1)

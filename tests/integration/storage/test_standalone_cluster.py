"""The copy job on a standalone cluster: a master and two workers in processes of their own.

The executors run a Python without site-packages: what a copy needs comes with the job or is Python's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_hive_federation.errors import FileVanishedError, SparkEnvironmentError
from airflow_hive_federation.hooks.spark import SparkPipelineHook
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.storage.digests import digest_file
from airflow_hive_federation.storage.plan_files import read_outcomes, write_plan
from tests.support.spark_classes import driver_options
from tests.support.standalone_spark import standalone_cluster

pytestmark = pytest.mark.slow

FILES = 40
BARE_PYTHON = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"


CONF = {
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": driver_options(),
    "spark.executor.extraJavaOptions": driver_options(),
}
ENV = {
    "PYSPARK_DRIVER_PYTHON": sys.executable,
    "PYSPARK_PYTHON": str(BARE_PYTHON),
    "SPARK_LOCAL_IP": "127.0.0.1",
}

#: An Airflow worker: it submits the job of its arguments, and waits.
WORKER = f"""
import sys
from airflow_hive_federation.hooks.spark import SparkPipelineHook
hook = SparkPipelineHook("spark_cluster", conf={CONF!r}, env={ENV!r})
hook.submit("copy-files", sys.argv[2:], report_uri=sys.argv[1])
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def master(cluster: Path) -> Iterator[str]:
    with standalone_cluster(cluster, workers=2) as url:
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

    # Slow attempts are run twice: the copies must not mind.
    hook = SparkPipelineHook("spark_cluster", conf={**CONF, "spark.speculation": "true"}, env=ENV)
    with pytest.raises(FileVanishedError) as caught:
        hook.copy_runner()(plan, outcomes)
    assert caught.value.path == items[0].source
    assert len(read_outcomes(outcomes)) == FILES - 1

    lost.write_bytes(content)
    arguments = ["--plan", plan, "--outcomes", outcomes]
    result = hook.submit("copy-files", arguments, report_uri=f"{outcomes}/_report.json")
    assert (result["recorded"], result["copied"]) == (FILES - 1, 1)
    recorded = read_outcomes(outcomes)
    for item in items:
        assert (
            digest_file(item.source).digest == digest_file(item.target).digest == recorded[item.target].digest
        )
    assert not list(tmp_path.rglob("._copy_*"))

    # A job that needs more is refused before it reads its plan.
    report = f"file:{tmp_path}/_report.json"
    with pytest.raises(SparkEnvironmentError, match="no pyarrow that can be imported") as refused:
        hook.submit("merge-buckets", ["--plan", f"file:{tmp_path}/none"], report_uri=report)
    assert (refused.value.package, refused.value.job) == ("pyarrow", "merge-buckets")


@pytest.mark.timeout(600)
def test_killed_worker_finds_its_application_again(
    master: str, cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next try waits for the application, and takes its result; it starts none."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CLUSTER", json.dumps({"conn_type": "spark", "host": master}))
    items = make_items(tmp_path)
    plan, outcomes = f"file:{tmp_path}/copy_plan.jsonl", f"file:{tmp_path}/outcomes"
    report = f"{outcomes}/_report.json"
    write_plan(plan, items)

    def application(what: str) -> int:
        return (cluster / "master.Master.log").read_text().count(what)

    # The master forgets an application a moment after its driver has ended.
    wait_for(lambda: application("Registered app") == application("Removing app"))
    registered = application("Registered app")
    arguments = ["--plan", plan, "--outcomes", outcomes, "--bandwidth", "400000"]
    with (tmp_path / "worker.log").open("ab") as log:
        worker = subprocess.Popen([sys.executable, "-c", WORKER, report, *arguments], stdout=log, stderr=log)
    try:
        wait_for(lambda: application("Registered app") > registered or worker.poll() is not None)
        assert worker.poll() is None, (tmp_path / "worker.log").read_text()[-3000:]
    finally:
        worker.kill()
        worker.wait()
    result = SparkPipelineHook("spark_cluster", conf=CONF, env=ENV).submit(
        "copy-files", arguments, report_uri=report
    )
    assert (result["recorded"], result["copied"]) == (0, FILES)
    assert application("Registered app") == registered + 1
    assert len(read_outcomes(outcomes)) == FILES
    assert not list(tmp_path.rglob("_report.json.*"))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline, "nothing happened within four minutes"
        time.sleep(0.05)


def make_items(folder: Path) -> list[CopyItem]:
    items = []
    for number in range(FILES):
        source = folder / "s" / f"bucket_{number:05}"
        source.parent.mkdir(exist_ok=True)
        source.write_bytes(os.urandom(50_000 + number))
        target = f"file:{folder}/t/p={number % 3}/bucket_{number:05}"
        items.append(CopyItem(source=f"file:{source}", target=target, size_bytes=50_000 + number))
    return items

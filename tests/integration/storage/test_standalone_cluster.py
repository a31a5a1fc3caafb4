"""The copy job on a standalone cluster: a master and two workers in processes of their own.

In client mode, the executors run a Python without site-packages: what a copy needs comes with the job or is
Python's own. In cluster mode, the workers share no disk with the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.hdfs import EmbeddedHdfs
from airflow_hive_federation.errors import FileVanishedError, SparkEnvironmentError
from airflow_hive_federation.hooks.spark import SparkPipelineHook
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.storage.digests import digest_file
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.storage.plan_files import read_outcomes, write_plan
from airflow_hive_federation.storage.publishing import write_atomically
from tests.support.spark_classes import QUICK, driver_options
from tests.support.standalone_spark import FAR_PYTHON, standalone_cluster

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
WORKER = """
import json, sys
from airflow_hive_federation.hooks.spark import SparkPipelineHook
conf, env, report, *arguments = sys.argv[1:]
hook = SparkPipelineHook("spark_cluster", conf=json.loads(conf), env=json.loads(env))
hook.submit("copy-files", arguments, report_uri=report)
"""
#: In cluster mode, the variables of the hook go to the driver, whose machine has its own.
FAR_CONF = {
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.pyspark.python": FAR_PYTHON,
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.extraJavaOptions": QUICK,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def master(cluster: Path) -> Iterator[str]:
    with standalone_cluster(cluster, workers=2) as url:
        yield url


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


def test_killed_worker_finds_its_application_again(
    master: str, cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next try waits for the application, and takes its result; it starts none."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CLUSTER", json.dumps({"conn_type": "spark", "host": master}))
    items = make_items(tmp_path)
    plan, outcomes = f"file:{tmp_path}/copy_plan.jsonl", f"file:{tmp_path}/outcomes"
    report = f"{outcomes}/_report.json"
    write_plan(plan, items)

    # The master forgets an application a moment after its driver has ended.
    wait_for(lambda: logged(cluster, "Registered app") == logged(cluster, "Removing app"))
    registered = logged(cluster, "Registered app")
    arguments = ["--plan", plan, "--outcomes", outcomes, "--bandwidth", "400000"]
    with killed_worker(tmp_path, [json.dumps(CONF), json.dumps(ENV), report, *arguments]) as alive:
        wait_for(lambda: logged(cluster, "Registered app") > registered or not alive())
    result = SparkPipelineHook("spark_cluster", conf=CONF, env=ENV).submit(
        "copy-files", arguments, report_uri=report
    )
    assert (result["recorded"], result["copied"]) == (0, FILES)
    assert logged(cluster, "Registered app") == registered + 1
    assert len(read_outcomes(outcomes)) == FILES
    assert not list(tmp_path.rglob("_report.json.*"))


def test_a_driver_on_a_worker_that_shares_no_disk(
    hive_hdfs: EmbeddedHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In cluster mode: the next try of a killed Airflow worker takes the result, and starts no driver."""
    root = f"{hive_hdfs.uri}/standalone cluster"
    outcomes = f"{root}/outcomes"
    report = f"{outcomes}/_report.json"
    items = []
    for number in range(8):
        source, target = (f"{root}/{side}/bucket_{number:05}" for side in "st")
        write_atomically(source, [os.urandom(50_000)])
        items.append(CopyItem(source=source, target=target, size_bytes=50_000))
    write_plan(f"{root}/plan.jsonl", items)
    arguments = ["--plan", f"{root}/plan.jsonl", "--outcomes", outcomes]
    with standalone_cluster(tmp_path, workers=2, apart=True) as master:
        connection = {"conn_type": "spark", "host": master, "extra": {"deploy-mode": "cluster"}}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_CLUSTER", json.dumps(connection))
        with killed_worker(tmp_path, [json.dumps(FAR_CONF), "{}", report, *arguments]) as alive:
            wait_for(lambda: logged(tmp_path, "Registered app") > 0 or not alive())
        hook = SparkPipelineHook("spark_cluster", conf=FAR_CONF)
        result = hook.submit("copy-files", arguments, report_uri=report)
        assert result["copied"] == len(items)
        assert logged(tmp_path, "Launching driver") == 1
    recorded = read_outcomes(outcomes)
    for item in items:
        digest = digest_file(item.source).digest
        assert digest_file(item.target).digest == digest == recorded[item.target].digest
    assert [entry.path for entry in list_files(outcomes) if "_report" in entry.path] == ["_report.json"]


def logged(cluster: Path, text: str) -> int:
    """Return the number of times that the master has logged a text."""
    return (cluster / "master.Master.log").read_text().count(text)


@contextmanager
def killed_worker(folder: Path, arguments: list[str]) -> Iterator[Callable[[], bool]]:
    """Run an Airflow worker in the block, and kill it at the end; yield whether it runs."""
    with (folder / "worker.log").open("ab") as log:
        worker = subprocess.Popen([sys.executable, "-c", WORKER, *arguments], stdout=log, stderr=log)
    try:
        yield lambda: worker.poll() is None
        assert worker.poll() is None, (folder / "worker.log").read_text()[-3000:]
    finally:
        worker.kill()
        worker.wait()


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

"""Jobs on a real YARN: ResourceManager, NodeManager and HDFS of Hadoop, in one process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.hdfs import EmbeddedHdfs
from airflow_hive_federation.errors import SparkJobError
from airflow_hive_federation.hooks.departures import JobDeparture
from airflow_hive_federation.hooks.probes import JobProbe
from airflow_hive_federation.hooks.spark import SparkPipelineHook, spark_environment
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.storage.digests import digest_file
from airflow_hive_federation.storage.plan_files import read_outcomes, write_plan
from airflow_hive_federation.storage.publishing import write_atomically

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

FILES = 8
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: An Airflow worker: it submits the job of its arguments, and waits.
WORKER = """
import json, sys
from airflow_hive_federation.hooks.spark import SparkPipelineHook
conf, env, report, *arguments = sys.argv[1:]
hook = SparkPipelineHook("spark_yarn", conf=json.loads(conf), env=json.loads(env))
hook.submit("copy-files", arguments, report_uri=report)
"""


class Yarn:
    """A cluster with YARN, the settings of jobs on it, and the states of its applications."""

    def __init__(self, hadoop: EmbeddedHdfs) -> None:
        self.hadoop = hadoop
        home = spark_environment(os.environ, {}, {}, local=True)["SPARK_HOME"]
        self.env = {"HADOOP_CONF_DIR": str(hadoop.configuration), "PYSPARK_PYTHON": sys.executable}
        self.conf = {
            # Containers find Spark on the disk, and not in the staging directory.
            "spark.yarn.jars": f"local:{home}/jars/*",
            "spark.executor.instances": "1",
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": QUICK_JVM,
            "spark.executor.extraJavaOptions": QUICK_JVM,
            "spark.yarn.am.extraJavaOptions": QUICK_JVM,
        }

    def connection(self, deploy_mode: str, **extra: str) -> str:
        address = {"yarn_resourcemanager_webapp_address": self.hadoop.resource_manager_uri}
        fields = {"deploy-mode": deploy_mode, **address, **extra}
        return json.dumps({"conn_type": "spark", "host": "yarn", "extra": fields})

    def hook(self) -> SparkPipelineHook:
        return SparkPipelineHook("spark_yarn", conf=self.conf, env=self.env)

    def applications(self) -> list[tuple[str, str]]:
        """Return the state and the final status of each application, with the oldest first."""
        with urllib.request.urlopen(f"{self.hadoop.resource_manager_uri}/ws/v1/cluster/apps") as answer:
            apps = (json.load(answer)["apps"] or {}).get("app", [])
        return [(app["state"], app["finalStatus"]) for app in sorted(apps, key=lambda app: app["id"])]

    def all_ended(self) -> bool:
        return all(state in {"FINISHED", "FAILED", "KILLED"} for state, _ in self.applications())


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with EmbeddedHdfs.start(directory=tmp_path_factory.mktemp("hadoop"), yarn=True) as hadoop:
        yield Yarn(hadoop)


class Copies:
    """A copy of files on HDFS, with its plan."""

    def __init__(self, root: str) -> None:
        self.outcomes = f"{root}/outcomes"
        self.report = f"{self.outcomes}/_report.json"
        self.items = []
        for number in range(FILES):
            source = f"{root}/s/bucket_{number:05}"
            write_atomically(source, [os.urandom(50_000)])
            item = CopyItem(source=source, target=f"{root}/t/bucket_{number:05}", size_bytes=50_000)
            self.items.append(item)
        self.plan = f"{root}/copy_plan.jsonl"
        write_plan(self.plan, self.items)

    def arguments(self, *more: str) -> list[str]:
        return ["--plan", self.plan, "--outcomes", self.outcomes, *more]

    def check(self) -> None:
        recorded = read_outcomes(self.outcomes)
        for item in self.items:
            assert digest_file(item.target).digest == digest_file(item.source).digest
            assert recorded[item.target].digest == digest_file(item.source).digest


def test_a_killed_task_finds_its_application_and_a_kill_ends_it(
    yarn: Yarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_YARN", yarn.connection("cluster"))
    copies = Copies(f"{yarn.hadoop.uri}/killed")
    slow = copies.arguments("--bandwidth", "2000")
    before = len(yarn.applications())
    with (tmp_path / "worker.log").open("wb") as log:
        settings = [json.dumps(yarn.conf), json.dumps(yarn.env)]
        command = [sys.executable, "-c", WORKER, *settings, copies.report, *slow]
        worker = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_for(lambda: ("RUNNING", "UNDEFINED") in yarn.applications() or worker.poll() is not None)
        assert worker.poll() is None, (tmp_path / "worker.log").read_text()[-3000:]
    finally:
        worker.kill()
        worker.wait()

    hook = yarn.hook()
    with ThreadPoolExecutor(1) as pool:
        retry = pool.submit(hook.submit, "copy-files", slow, report_uri=copies.report)
        wait_for(lambda: hook._followed is not None or retry.done())
        hook.on_kill()
        with pytest.raises(SparkJobError, match=r"^The Spark job was killed\."):
            retry.result()
    wait_for(yarn.all_ended)
    # The second try has started none, and the end of the first one is no success.
    assert [status for _, status in yarn.applications()[before:]] == ["FAILED"]
    assert len(read_outcomes(copies.outcomes)) < FILES


def test_a_task_leaves_its_worker_and_takes_the_result(yarn: Yarn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_YARN", yarn.connection("cluster"))
    copies = Copies(f"{yarn.hadoop.uri}/left")
    before = len(yarn.applications())
    leaving = yarn.hook()
    leaving.depart(True)
    with pytest.raises(JobDeparture) as left:
        leaving.submit("copy-files", copies.arguments(), report_uri=copies.report)
    job = left.value.job
    probe = JobProbe(
        report=job.report, attempt=job.attempt, spark_conn_id="spark_yarn", metastore_conn_ids=[]
    )
    wait_for(lambda: bool(probe()))

    returning = yarn.hook()
    returning.depart(True, [job])
    result = returning.submit("copy-files", copies.arguments(), report_uri=copies.report)
    returning.arrive()
    assert result["copied"] == FILES
    copies.check()
    wait_for(yarn.all_ended)
    assert [status for _, status in yarn.applications()[before:]] == ["SUCCEEDED"]


def test_a_driver_in_client_mode(yarn: Yarn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_YARN", yarn.connection("client"))
    copies = Copies(f"{yarn.hadoop.uri}/client")
    result = yarn.hook().submit("copy-files", copies.arguments(), report_uri=copies.report)
    assert result["copied"] == FILES
    copies.check()


def test_a_queue_that_does_not_exist(yarn: Yarn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_YARN", yarn.connection("cluster", queue="nobodys"))
    copies = Copies(f"{yarn.hadoop.uri}/queue")
    with pytest.raises(SparkJobError, match="unknown queue: nobodys"):
        yarn.hook().submit("copy-files", copies.arguments(), report_uri=copies.report)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline, "nothing happened within four minutes"
        time.sleep(0.3)

"""Jobs on a real YARN: ResourceManager, NodeManager and HDFS of Hadoop, in one process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_hive_federation.embedded.hdfs import EmbeddedHdfs
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import SparkJobError, SparkRefusedError
from airflow_hive_federation.hooks.spark import spark_environment
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.spark.package_zip import package_zip
from airflow_hive_federation.storage.digests import digest_file
from airflow_hive_federation.storage.hdfs import USER_VARIABLE
from airflow_hive_federation.storage.plan_files import read_outcomes, write_plan
from airflow_hive_federation.storage.publishing import write_atomically
from tests.support.cycling import rows
from tests.support.documents import ROOT
from tests.support.spark_classes import QUICK
from tests.support.yarn import CONNECTION, VARIABLE, Yarn, wait_for

pytestmark = pytest.mark.slow

FILES = 8
#: The program of docs/acid-writing.md.
PROGRAM = ROOT / "docs" / "examples" / "acid_on_yarn.py"
#: An Airflow worker: it submits the job of its arguments, and waits.
WORKER = """
import json, sys
from airflow_hive_federation.hooks.spark import SparkPipelineHook
conf, env, report, *arguments = sys.argv[1:]
hook = SparkPipelineHook("spark_yarn", conf=json.loads(conf), env=json.loads(env))
hook.submit("copy-files", arguments, report_uri=report)
"""


#: A NodeManager that kills containers for their memory, which that of the minicluster does not otherwise.
LIMITS = {
    # By default, a NodeManager leaves the kill to control groups, even if it uses none.
    "yarn.nodemanager.resource.memory.enforced": "false",
    "yarn.minicluster.control-resource-monitoring": "true",
    "yarn.nodemanager.container-monitor.interval-ms": "500",
}


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    home = tmp_path_factory.mktemp("hadoop")
    with EmbeddedHdfs.start(directory=home, settings=LIMITS, yarn=True) as hadoop:
        yield Yarn(hadoop)


#: Memory of an executor's container, in MB.
CONTAINER_MB = 768
#: A Python that takes this memory for itself, and keeps its task waiting until the container is killed.
HUNGRY = f"import time\nheld = bytearray(b'x') * ({CONTAINER_MB} << 20)\ntime.sleep(300)\n"


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
    monkeypatch.setenv(VARIABLE, yarn.connection("cluster"))
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


def test_an_executor_that_exceeds_its_memory_and_the_next_run(
    yarn: Yarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python of an executor needs more than its container has; the next run copies all, in client mode."""
    monkeypatch.setenv(VARIABLE, yarn.connection("client"))
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__SPARK_APPLICATION_URL", "http://rm/{application}")
    copies = Copies(f"{yarn.hadoop.uri}/client")
    (tmp_path / "sitecustomize.py").write_text(HUNGRY, encoding="utf-8")
    conf = {
        "spark.executor.memory": "512m",
        "spark.executor.memoryOverhead": f"{CONTAINER_MB - 512}m",
        "spark.executorEnv.PYTHONPATH": str(tmp_path),
        # Each of four executors would be killed.
        "spark.task.maxFailures": "1",
    }
    limit = rf"YARN has killed the container of executor 1 on \S+, .* of {CONTAINER_MB} MB\)"
    with pytest.raises(SparkRefusedError, match=limit) as refused:
        yarn.hook(**conf).submit("copy-files", copies.arguments(), report_uri=copies.report)
    assert refused.value.remedy == "Raise spark.executor.memoryOverhead."
    assert (refused.value.facts["reason"], refused.value.facts["executor"]) == ("memory", "1")

    hook = yarn.hook()
    result = hook.submit("copy-files", copies.arguments(), report_uri=copies.report)
    assert result["copied"] == FILES
    copies.check()
    # The driver reports its id.
    assert hook.application_url.startswith("http://rm/application_")


def test_a_driver_that_exceeds_its_memory(yarn: Yarn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its heap alone fills the container."""
    monkeypatch.setenv(VARIABLE, yarn.connection("cluster"))
    copies = Copies(f"{yarn.hadoop.uri}/memory")
    conf = {
        "spark.driver.memory": "510m",
        "spark.driver.memoryOverhead": "1m",
        "spark.driver.extraJavaOptions": f"{QUICK} -Xms510m -XX:+AlwaysPreTouch",
    }
    with pytest.raises(SparkRefusedError, match=r"of 512 MB physical memory used") as refused:
        yarn.hook(**conf).submit("copy-files", copies.arguments(), report_uri=copies.report)
    assert refused.value.remedy == "Raise spark.driver.memoryOverhead."
    assert refused.value.facts["reason"] == "memory"
    assert str(refused.value.facts["application"]) in str(refused.value)


def test_a_queue_that_does_not_exist(yarn: Yarn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, yarn.connection("cluster", queue="nobodys"))
    copies = Copies(f"{yarn.hadoop.uri}/queue")
    with pytest.raises(SparkJobError, match="unknown queue: nobodys"):
        yarn.hook().submit("copy-files", copies.arguments(), report_uri=copies.report)


#: A user who is neither the superuser nor that of the NodeManager's process, as on most clusters.
USER = "alice"


@pytest.fixture
def orders(yarn: Yarn, hive_sql_source: HiveSql) -> Iterator[str]:
    """An ACID table on HDFS, in a directory of the user's; its metastore is that of ``source``."""
    # Hive refuses a directory that is there.
    hive_sql_source.execute(f"create database on_yarn managedlocation '{yarn.hadoop.uri}/acid'")
    hive_sql_source.execute(
        "create table on_yarn.orders (id int, state string) clustered by (id) into 2 buckets stored as orc "
        "tblproperties ('transactional'='true')"
    )
    yarn.hadoop.shell("-mkdir", "-p", f"/user/{USER}")
    yarn.hadoop.shell("-chown", "-R", USER, f"/user/{USER}", "/acid")
    yield "on_yarn.orders"
    hive_sql_source.execute("drop database on_yarn cascade")


def test_an_acid_table_is_written_in_cluster_mode(
    yarn: Yarn,
    orders: str,
    source: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The documented program, with the package from its archive; Hive reads the rows."""
    monkeypatch.setenv(VARIABLE, yarn.connection("cluster"))
    for name, value in spark_environment(os.environ, yarn.env, {}, local=False).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(USER_VARIABLE, USER)
    hook = SparkSubmitHook(
        conn_id=CONNECTION,
        conf={**yarn.conf, "spark.yarn.maxAppAttempts": "1"},
        py_files=str(package_zip()),
        application_args=[source.uri, orders],
    )
    hook.submit(str(PROGRAM))
    # The provider leaves the pipe of the log open.
    hook._submit_sp.stdout.close()
    assert yarn.users()[-1] == USER
    assert rows(hive_sql_source, f"select id, state from {orders}") == [
        ("1", "paid"),
        ("3", "new"),
        ("4", "new"),
    ]
    listed = yarn.hadoop.shell("-ls", "-R", "/acid").splitlines()
    assert {line.split()[2] for line in listed} == {USER}, listed
